"""Keeps one stream of ours open to each connected peer: on it the peer hears what we follow, and all our gossip.

Peers come back before their old connection has ended, dial while they are dialled, and answer late. The library then
gives up opening the stream, opens a second one, or keeps one that has ended. It notices at the next message for the
peer, so two nodes would stay connected without telling each other their topics for as long as nobody publishes.
"""

import logging
import math
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import trio
from libp2p.pubsub import pubsub
from libp2p.utils.varint import encode_varint_prefixed

from sapo_node.net.inbound import quietly
from sapo_node.net.patches import own_record

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between two attempts to open our stream to a peer
STEADY_SECONDS = 60.0  # after so long without an attempt, the pause is FIRST_PAUSE again


@dataclass(slots=True)
class Opening:
    """Events while our stream to a peer is opened."""

    connected: trio.Event = field(default_factory=trio.Event)
    """Set by a new connection, which ends the pause before the next attempt."""
    changed: set[str] = field(default_factory=set)
    """The topics that we followed or left since the attempt began."""


class OneStreamPubsub(pubsub.Pubsub):  # type: ignore[misc]
    """The library's gossip service, with one stream of ours to each connected peer."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._opening: dict[Any, Opening] = {}
        """By peer, while a task opens our stream to it."""
        self._records: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
        """By stream of ours: our signed record, as the peer has it."""
        self._attempts: dict[Any, tuple[float, float]] = {}
        """By connected peer: when the last attempt began, and how many seconds the next one comes later."""

    async def _handle_new_peer_with_retry(self, peer_id: Any, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - the library's signature
        """Open our stream to a peer that has just connected, at once."""
        if peer_id in self._opening:
            self._opening[peer_id].connected.set()
            return
        self._opening[peer_id] = Opening()
        await self._open(peer_id, 0.0)

    def _schedule_peer_stream_retry(self, peer_id: Any) -> None:
        """Open our stream to a peer again, after a pause.

        The connection may be ending, too. And the peer gets the latest messages on each stream.
        """
        if not self.manager.is_running or peer_id in self._opening:
            return
        self._opening[peer_id] = Opening()
        begun, pause = self._attempts.get(peer_id, (-math.inf, 0.0))
        self.manager.run_task(self._open, peer_id, max(FIRST_PAUSE, begun + pause - trio.current_time()))

    async def _open(self, peer_id: Any, pause: float) -> None:
        """Open our stream to a peer after `pause` seconds. After any error try again, while the peer is connected.

        The library opens a stream for each of two connections that come at once, and nothing ends the first of them. It
        gives up after most errors, also after that of a stream on a connection that ends while the peer has another.
        """
        try:
            while peer_id not in self.peers:
                with trio.move_on_after(pause):
                    await self._opening[peer_id].connected.wait()
                if not self._peer_is_connected(peer_id):
                    return
                self._opening[peer_id] = opening = Opening()
                pause = self._next_pause(peer_id)
                record, _ = own_record(self.host)  # which the first RPC brings
                try:
                    await self._handle_new_peer(peer_id)
                except Exception as error:  # noqa: BLE001 - the library raises many errors; none of them is final
                    log.debug("no stream to %s: %r", peer_id, error)
                if peer_id in self.peers:
                    self._records.setdefault(self.peers[peer_id], record)
                    self._tell(peer_id, opening.changed)
        finally:
            self._opening.pop(peer_id, None)

    def _next_pause(self, peer_id: Any) -> float:
        """An attempt begins: the seconds to the next one. They double, because a peer may reset each of our streams."""
        now = trio.current_time()
        begun, pause = self._attempts.get(peer_id, (-math.inf, 0.0))
        pause = min(2 * pause, LONGEST_PAUSE) if now < begun + STEADY_SECONDS else FIRST_PAUSE
        self._attempts[peer_id] = now, pause
        return pause

    async def handle_sending_messages(self, peer_id: Any, stream: Any, queue: Any) -> None:
        """Write what the peer gets until our stream ends. The library would notice its end only at the next message."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, peer_id, stream)
            await super().handle_sending_messages(peer_id, stream, queue)
            nursery.cancel_scope.cancel()

    async def _watch(self, peer_id: Any, stream: Any) -> None:
        """Give up our stream when it ends. The peer writes nothing on it, so a read returns only then.

        A peer resets it, for one, while it still reads too many older ones of ours.
        """
        try:
            await stream.read(1)
        except Exception as error:  # noqa: BLE001 - the stream has ended, whatever the error
            log.debug("our stream to %s has ended: %r", peer_id, error)
        if self.peers.get(peer_id) is stream:
            self._handle_dead_peer(peer_id)

    async def message_all_peers(self, raw_msg: bytes, announce: Any = None) -> None:
        """Tell all peers that we follow or leave a topic, later also those whose stream has our topics of before."""
        for opening in self._opening.values():
            opening.changed.add(announce.topicid)
        await super().message_all_peers(raw_msg, announce)

    def _tell(self, peer_id: Any, topics: set[str]) -> None:
        """Tell a peer whether we follow each of these topics."""
        for topic in topics:
            rpc, announce = self._build_announce_rpc(topic, subscribe=topic in self.topic_ids)
            self._enqueue_or_retry_announce(peer_id, self.peer_queues[peer_id], rpc, announce)

    def connection_ended(self, link: Any) -> None:
        """Open our stream to a peer again if it was on a connection that has ended while the peer has another one.

        A peer that restarts is back before its old connection has ended. The library would tell it our topics only
        after a message for it had been lost on the old stream. It also keeps what a peer followed to which we had none.
        """
        stream = self.peers.get(link.muxed_conn.peer_id)
        if stream is None or stream.muxed_conn is link.muxed_conn:
            self._handle_dead_peer(link.muxed_conn.peer_id)

    def _handle_dead_peer(self, peer_id: Any) -> None:
        """Give up our stream to a peer, and open another if the peer is connected.

        Resets the old one. Otherwise the peer would read from it for as long as the connection lasts: it charges us for
        what we did not finish, and refuses the streams of a peer with too many.
        """
        stream = self.peers.get(peer_id)
        super()._handle_dead_peer(peer_id)
        if not self._peer_is_connected(peer_id):
            self._attempts.pop(peer_id, None)
            self.router.remove_peer(peer_id)  # the library keeps it in the mesh if we had no stream to it at the end
        if stream is not None and self.manager.is_running:
            self.manager.run_task(quietly, stream.reset)

    async def write_msg(self, stream: Any, rpc_msg: Any) -> bool:
        """Write an RPC. False if that failed, which gives the stream up.

        The library would then give up the stream of the peer, even a newer one. It sends our record with
        every RPC: here only with the first after our addresses changed.
        """
        record, _ = own_record(self.host)
        if self._records.get(stream) == record:
            rpc_msg.ClearField("senderRecord")
        else:
            rpc_msg.senderRecord = self._records[stream] = record
        try:
            await stream.write(encode_varint_prefixed(rpc_msg.SerializeToString()))
        except Exception as error:  # noqa: BLE001 - the stream is of no use any more, whatever it was
            log.debug("writing to a stream failed: %r", error)
            if self.peers.get(stream.muxed_conn.peer_id) is stream:
                self._handle_dead_peer(stream.muxed_conn.peer_id)
            return False
        return True

    def _forget_all_subscriptions(self, peer_id: Any) -> None:
        """Keep them while the peer is connected: it sent them once, on its own stream, which goes on when ours ends.

        What waited in the queue of our stream is lost. So the peer gets the latest messages on the next one.
        """
        if self._peer_is_connected(peer_id):
            self._replayed_recent_topics.pop(peer_id, None)
        else:
            super()._forget_all_subscriptions(peer_id)
