"""Which shards of a swarm a node follows: all of them, until they bring more than it is willing to hear.

Peer states are first-hand, and issuers change shards with every epoch. So a node that follows only some shards follows
those on which most of its healthy peers publish. It meets these peers again, and all others that publish there.
"""

import random
from collections import Counter
from collections.abc import Collection

from sapo_node.trust.ledger import Ledger
from sapo_protocol import Manifest, public_key_of, shard_of

MESSAGES_PER_SECOND = 16.0
"""Accepted ones that a node is willing to hear, on average: with all their copies they cost an eighth of a core, and
five hundred peers send them that play a round every half a minute. It learns from a few groups of them."""
MEASURED_SECONDS = 30.0
"""What is heard in less time than this says nothing."""


def affordable_shards(each: float, most: int) -> int:
    """How many shards a node follows that bring `each` messages a second, of `most`."""
    return most if each * most <= MESSAGES_PER_SECOND else max(1, int(MESSAGES_PER_SECOND / each))


class ShardSubscriptions:
    """The shards that are followed, epoch by epoch."""

    def __init__(self, manifest: Manifest, ledger: Ledger, rng: random.Random) -> None:
        self._manifest = manifest
        self._ledger = ledger
        self._rng = rng
        self._epoch: int | None = None
        self._since = 0.0
        self._before = 0
        self.shards = frozenset(range(manifest.shards))

    def at(self, now: float, epoch: int, accepted: int) -> frozenset[int]:
        """The shards to follow now: more of them with a new epoch only, fewer at any time.

        `now` in seconds, `epoch` the one that runs, `accepted` how many messages this node accepted from gossip since
        it started.
        """
        count = self._bearable(now, accepted)
        new = epoch != self._epoch
        if new or count < len(self.shards):
            self._epoch = epoch
            self.shards = self._known_best(epoch, count, range(self._manifest.shards) if new else self.shards)
            if now - self._since >= MEASURED_SECONDS:
                self._since, self._before = now, accepted
        return self.shards

    def _bearable(self, now: float, accepted: int) -> int:
        """How many shards like those that are followed bring what a node is willing to hear."""
        seconds = now - self._since
        if seconds < MEASURED_SECONDS:
            return len(self.shards)
        return affordable_shards((accepted - self._before) / seconds / len(self.shards), self._manifest.shards)

    def _known_best(self, epoch: int, count: int, among: Collection[int]) -> frozenset[int]:
        """So many of the shards, of which most healthy peers publish on them in an epoch."""
        if count >= len(among):
            return frozenset(among)
        known = Counter(shard_of(self._manifest, public_key_of(peer), epoch) for peer in self._ledger.healthy())
        drawn = self._rng.sample(sorted(among), len(among))
        return frozenset(sorted(drawn, key=lambda shard: -known[shard])[:count])
