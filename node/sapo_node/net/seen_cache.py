"""Asks the node about each distinct message once, and remembers that it did.

A content is marked before the node is asked, so that the node is asked once about two copies that arrive together.
ACCEPT, KEEP and REJECT are remembered for SETTLED_SECONDS. IGNORE depends on clock and quota: it is remembered for
IGNORED_SECONDS, which absorbs one flood. BUSY is not remembered: else a peer that floods, and is the first to forward
a message of an honest peer, would hide the copies of all others.
"""

import hashlib
import logging
from collections.abc import Mapping

import trio

from sapo_node.net.interface import Channel, MessageTooLargeError, Verdict
from sapo_node.processes.bounded import Bounded

log = logging.getLogger(__name__)

SETTLED_SECONDS = 600.0
IGNORED_SECONDS = 20.0
CAPACITY = 65_536  # contents; about 10 MB


def content_id(data: bytes) -> bytes:
    """The id of a message on its topic: SHA-256 of its bytes."""
    return hashlib.sha256(data).digest()


def message_id(topic: str, data: bytes) -> bytes:
    """The id of a message among all topics, by which peers request it (spec: topics)."""
    return hashlib.sha256(topic.encode() + b"\0" + data).digest()


class RecentIds:
    """A bounded set of content ids, each with a time at which it is forgotten. The oldest is removed first.

    `add` also removes expired ids, so that the set does not grow for hours until it reaches its capacity.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._until: Bounded[bytes, float] = Bounded(capacity)

    def has(self, key: bytes, *, at: float | None = None) -> bool:
        """Return whether an id is in the set now, or will still be in it at the later time `at`."""
        return (trio.current_time() if at is None else at) < self._until.get(key, 0.0)

    def add(self, key: bytes, seconds: float = SETTLED_SECONDS) -> None:
        now = trio.current_time()
        self._until[key] = now + seconds
        while next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self._until.pop(key, None)


class SeenCache:
    """Bounded memory of verdicts in front of the `handle` of one topic.

    Each topic has its own cache. Otherwise a message that was refused on a wrong topic would count as seen on its own
    topic, and be dropped there.
    """

    def __init__(self, channel: Channel, capacity: int = CAPACITY) -> None:
        """`capacity` is the number of contents that are remembered."""
        self._handle = channel.handle
        self.max_bytes = channel.max_bytes
        self._known = RecentIds(capacity)

    def knows(self, key: bytes, *, at: float | None = None) -> bool:
        """Return whether the node was asked about the content of this id, or is being asked."""
        return self._known.has(key, at=at)

    async def ask(self, sender: str, data: bytes) -> Verdict | None:
        """The node's verdict on a new content; None if it was already asked about the content."""
        key = content_id(data)
        if self._known.has(key):
            return None
        self._known.add(key, float("inf"))
        try:
            verdict = await self._handle(sender, data)
        except Exception:  # An error of the node must not end the peer's connection or the service.
            log.exception("the message handler failed; the message is ignored")
            verdict = Verdict.IGNORE
        except BaseException:
            self._known.discard(key)  # cancelled: the node gave no verdict, so it may be asked again
            raise
        if verdict is Verdict.BUSY:
            self._known.discard(key)
        else:
            self._known.add(key, IGNORED_SECONDS if verdict is Verdict.IGNORE else SETTLED_SECONDS)
        return verdict

    def mark_seen(self, data: bytes) -> None:
        """Mark an own content, so that the node is not asked when a peer sends it back. Raises MessageTooLargeError."""
        if len(data) > self.max_bytes:
            raise MessageTooLargeError(
                f"a message of {len(data)} bytes exceeds the limit of {self.max_bytes}: share less"
            )
        self._known.add(content_id(data))


def seen_caches(channels: Mapping[str, Channel]) -> dict[str, SeenCache]:
    """One cache for each topic. Together they remember at most CAPACITY contents."""
    return {topic: SeenCache(channel, CAPACITY // len(channels)) for topic, channel in channels.items()}
