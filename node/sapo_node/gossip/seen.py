"""The messages that the node was asked about: it is asked once about each.

A message is known from the moment at which the node is asked: two copies that arrive together are one question.
ACCEPT, KEEP and REJECT are remembered for SETTLED_SECONDS. IGNORE depends on clock and quota: it is remembered for
IGNORED_SECONDS, which absorbs one flood. BUSY is not remembered: else a peer that floods, and is the first to forward
a message of an honest peer, would hide the copies of all others.
"""

import hashlib
from math import inf

from sapo_node.gossip.verdict import Verdict
from sapo_node.processes.bounded import Bounded

SETTLED_SECONDS = 600.0
IGNORED_SECONDS = 20.0
CAPACITY = 65_536  # messages; about 10 MB


def content_id(data: bytes) -> bytes:
    """The id of a message without its topic: SHA-256 of its bytes."""
    return hashlib.sha256(data).digest()


def message_id(topic: bytes, data: bytes) -> bytes:
    """The id of a message among all topics, by which peers request it (spec: topics)."""
    return hashlib.sha256(topic + b"\0" + data).digest()


class RecentIds:
    """A bounded set of ids, each with a time at which it is forgotten. The oldest is removed first.

    `add` also removes expired ids, so that the set does not grow for hours until it reaches its capacity.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._until: Bounded[bytes, float] = Bounded(capacity)

    def has(self, key: bytes, now: float) -> bool:
        """Return whether an id is in the set at `now` (seconds)."""
        return now < self._until.get(key, 0.0)

    def add(self, key: bytes, now: float, seconds: float) -> None:
        self._until[key] = now + seconds
        while next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self._until.pop(key, None)


class Seen:
    """The messages that the node was asked about, or is being asked about, by message id.

    The id depends on the topic. Otherwise a message that was refused on a wrong topic would be dropped on its own.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._ids = RecentIds(capacity)

    def knows(self, key: bytes, now: float) -> bool:
        """Return whether the node need not be asked about the message of this id at `now` (seconds)."""
        return self._ids.has(key, now)

    def ask(self, key: bytes, now: float) -> None:
        """The node is asked about a message."""
        self._ids.add(key, now, inf)

    def settle(self, key: bytes, verdict: Verdict, now: float) -> None:
        """The node decided about a message."""
        if verdict is Verdict.BUSY:
            self._ids.discard(key)
        else:
            self._ids.add(key, now, IGNORED_SECONDS if verdict is Verdict.IGNORE else SETTLED_SECONDS)
