"""One judgement per content: asks the node about each distinct message once and remembers that it did.

A content is marked before the node is asked, so two copies that arrive together are one question. ACCEPT and
REJECT are remembered long; IGNORE, which depends on clock and quota, only long enough to absorb one flood.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping

import trio

from sapo_node.net.interface import Channel, MessageTooLargeError, Verdict

log = logging.getLogger(__name__)

SETTLED_SECONDS = 600.0
IGNORED_SECONDS = 20.0
CAPACITY = 65_536  # contents; about 10 MB


def content_id(data: bytes) -> bytes:
    """The identity of a message on its topic: SHA-256 of its bytes."""
    return hashlib.sha256(data).digest()


def message_id(topic: str, data: bytes) -> bytes:
    """The identity of a message among all topics, by which peers ask for it (spec: topics)."""
    return hashlib.sha256(topic.encode() + b"\0" + data).digest()


class RecentIds:
    """A bounded set of content ids, each with a time at which it is forgotten; the oldest goes first.

    What has passed makes room with every new one, or a node would grow for hours until the bound is reached.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._capacity = capacity

    def has(self, key: bytes, *, at: float | None = None) -> bool:
        """Now, or still at a later time if nothing happens until then."""
        return (trio.current_time() if at is None else at) < self._until.get(key, 0.0)

    def add(self, key: bytes, seconds: float = SETTLED_SECONDS) -> None:
        now = trio.current_time()
        self._until[key] = now + seconds
        self._until.move_to_end(key)
        while len(self._until) > self._capacity or next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self._until.pop(key, None)


class SeenCache:
    """Bounded memory of verdicts in front of the `handle` of one topic.

    Each topic has its own cache: else a message that is refused on a wrong topic would count as seen, and
    be dropped, on the topic where it belongs.
    """

    def __init__(self, channel: Channel, capacity: int = CAPACITY) -> None:
        """`capacity` in contents that are remembered."""
        self._handle = channel.handle
        self.max_bytes = channel.max_bytes
        self._known = RecentIds(capacity)

    def knows(self, key: bytes, *, at: float | None = None) -> bool:
        """Whether the node was asked about the content of this id, or is being asked, so that it would not be again."""
        return self._known.has(key, at=at)

    async def ask(self, sender: str, data: bytes) -> Verdict | None:
        """The node's verdict on a content that is new; None for one it was already asked about."""
        key = content_id(data)
        if self._known.has(key):
            return None
        self._known.add(key, float("inf"))
        try:
            verdict = await self._handle(sender, data)
        except Exception:  # A fault of the node must not end the peer's connection, let alone the service.
            log.exception("the message handler failed; the message is ignored")
            verdict = Verdict.IGNORE
        except BaseException:
            self._known.discard(key)  # cancelled: the question got no answer and may be asked again
            raise
        self._known.add(key, IGNORED_SECONDS if verdict is Verdict.IGNORE else SETTLED_SECONDS)
        return verdict

    def mark_seen(self, data: bytes) -> None:
        """Never ask about a content of our own that comes back. Raises MessageTooLargeError."""
        if len(data) > self.max_bytes:
            raise MessageTooLargeError(
                f"a message of {len(data)} bytes exceeds the limit of {self.max_bytes}: share less"
            )
        self._known.add(content_id(data))


def seen_caches(channels: Mapping[str, Channel]) -> dict[str, SeenCache]:
    """One for each topic, which together remember no more than one alone would."""
    return {topic: SeenCache(channel, CAPACITY // len(channels)) for topic, channel in channels.items()}
