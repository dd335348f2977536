"""Queues of what is to be sent, one for each peer, which are written as RPCs.

A writer pulls the next frame when it can write, so messages that wait for one peer share an RPC. Control messages that
wait are merged: of a topic only the last GRAFT or PRUNE and the newest IHAVE are sent.

One outbox is bounded in messages and in bytes, and all outboxes together in bytes: many peers that do not read would
otherwise fill the memory. Beyond ALL_QUEUED_BYTES the peer with the fullest outbox loses it and its connection. That
peer reads more slowly than it is sent to; if it is honest, it connects again and requests what it missed.
"""

from collections import deque
from collections.abc import Collection

from sapo_node.gossip.rpc import PUBLISHES, WANTED_IDS, Control, Graft, IHave, IWant, Prune, Rpc, Subscription, framed

QUEUED_MESSAGES = 4096
QUEUED_BYTES = 16 * 1024 * 1024  # for one peer
ALL_QUEUED_BYTES = 64 * 1024 * 1024  # for all peers
SHARED_BYTES = 16_384
"""The size up to which parts share an RPC. A larger message has an RPC of its own: a peer need not take more than
`max_message_bytes` + 2,000 bytes."""


class Outboxes:
    """The common budget of all outboxes, and the peers whose outbox has something new."""

    def __init__(self) -> None:
        self.bytes = 0
        self.woken: dict[str, None] = {}

    @property
    def is_full(self) -> bool:
        """Return whether the fullest outbox has to go."""
        return self.bytes > ALL_QUEUED_BYTES


class Outbox:
    """The queue for one peer. While there is no stream to the peer the outbox is closed, and takes nothing."""

    def __init__(self, peer: str, shared: Outboxes) -> None:
        self.is_open = False
        self.record = b""
        """The signed record of this node that the peer has to have."""
        self._told = b""
        self._peer = peer
        self._shared = shared
        self._clear()

    def _clear(self) -> None:
        self._topics: dict[bytes, bool] = {}
        self._places: dict[bytes, int | None] = {}
        """By topic: None for a GRAFT, or the seconds of a PRUNE."""
        self._offers: dict[bytes, list[bytes]] = {}
        self._wanted: list[bytes] = []
        self._messages: deque[bytes] = deque()
        self.bytes = 0

    def open(self) -> None:
        """A stream to the peer begins. Nothing that was sent on an earlier one is sent again."""
        self.close()
        self.is_open = True
        self._told = b""

    def close(self) -> None:
        """The stream ended. What waits is dropped."""
        self.is_open = False
        self._shared.bytes -= self.bytes
        self._clear()

    def tell_topic(self, topic: bytes, *, follows: bool) -> None:
        self._topics[topic] = follows
        self._wake()

    def tell_record(self, record: bytes) -> None:
        """Send our record, if the peer does not have it from this stream."""
        self.record = record
        self._wake()

    def graft(self, topic: bytes) -> None:
        self._places[topic] = None
        self._wake()

    def prune(self, topic: bytes, seconds: int) -> None:
        """Send a PRUNE with a back-off of these seconds."""
        self._places[topic] = seconds
        self._wake()

    def offer(self, topic: bytes, ids: list[bytes]) -> None:
        self._offers[topic] = ids
        self._wake()

    @property
    def may_want(self) -> int:
        """The ids that can still be requested in the next RPC."""
        return WANTED_IDS - len(self._wanted) if self.is_open else 0

    def want(self, ids: Collection[bytes]) -> None:
        """Request these messages, at most `may_want`."""
        self._wanted += ids
        self._wake()

    def send(self, field: bytes) -> None:
        """Send an encoded message, unless the outbox is full."""
        if self.is_open and len(self._messages) < QUEUED_MESSAGES and self.bytes + len(field) <= QUEUED_BYTES:
            self._messages.append(field)
            self._add(len(field))
            self._wake()

    def _wake(self) -> None:
        if self.is_open:
            self._shared.woken[self._peer] = None
        else:
            self._clear()

    def _add(self, count: int) -> None:
        self.bytes += count
        self._shared.bytes += count

    def next_frame(self) -> bytes:
        """The next RPC, with its length before it; empty if nothing waits."""
        head = self._head()
        parts, size = ([head], len(head)) if head else ([], 0)
        while self._messages and len(parts) < PUBLISHES:
            if parts and size + len(self._messages[0]) > SHARED_BYTES:
                break
            parts.append(self._messages.popleft())
            size += len(parts[-1])
        self._add(len(head) - size)
        return framed(parts) if parts else b""

    def _head(self) -> bytes:
        """The fields of the next RPC that are no messages."""
        if self.record == self._told and not (self._topics or self._places or self._offers or self._wanted):
            return b""
        rpc = Rpc()
        if self.record != self._told:
            rpc.record = self._told = self.record
        if self._topics:
            rpc.subscriptions.extend(Subscription(subscribe=on, topic=topic) for topic, on in self._topics.items())
        if self._places or self._offers or self._wanted:
            control = Control(
                ihave=[IHave(topic=topic, ids=ids) for topic, ids in self._offers.items()],
                iwant=[IWant(ids=self._wanted)] if self._wanted else (),
                graft=[Graft(topic=topic) for topic, seconds in self._places.items() if seconds is None],
                prune=[
                    Prune(topic=topic, backoff=seconds)
                    for topic, seconds in self._places.items()
                    if seconds is not None
                ],
            )
            rpc.control.CopyFrom(control)
        self._topics, self._places, self._offers, self._wanted = {}, {}, {}, []
        return bytes(rpc.SerializeToString())
