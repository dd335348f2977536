"""Which shards of a swarm a node follows: all of them, until they bring more than it is willing to hear.

Peer states are first-hand, and issuers change shards with every epoch. So a node that follows only some shards follows
those on which most of its healthy peers publish. It meets these peers again, and all others that publish there.

Keys cost nothing, so an attacker can have thousands publish on one shard. Therefore the node measures each shard apart.
Within an epoch it drops the shards with the fewest healthy peers for the messages that they bring. In the next epoch
the same keys publish on other shards: for it the node expects of each shard the mean of what those followed bring, in
which no shard counts for more than twice the median.
"""

import random
from collections import Counter
from collections.abc import Mapping
from statistics import fmean, median

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
        self._before: Mapping[int, int] = {}
        self.shards = frozenset(range(manifest.shards))

    def at(self, now: float, epoch: int, accepted: Mapping[int, int]) -> frozenset[int]:
        """The shards to follow now: more of them with a new epoch only, fewer at any time.

        `now` in seconds, `epoch` the one that runs, `accepted` how many messages of each shard this node accepted from
        gossip since it started.
        """
        measured = now - self._since >= MEASURED_SECONDS
        rates = self._rates(now, accepted) if measured else {}
        if epoch != self._epoch:
            self._epoch = epoch
            self.shards = self._expected(rates)
        elif sum(rates.values()) > MESSAGES_PER_SECOND:
            self.shards = self._bearable(rates)
        else:
            return self.shards
        if measured:
            self._since, self._before = now, dict(accepted)
        return self.shards

    def _rates(self, now: float, accepted: Mapping[int, int]) -> dict[int, float]:
        """Messages a second that each followed shard brought since the last change."""
        seconds = now - self._since
        return {shard: (accepted.get(shard, 0) - self._before.get(shard, 0)) / seconds for shard in self.shards}

    def _expected(self, rates: Mapping[int, float]) -> frozenset[int]:
        """For a new epoch: as many shards as are bearable, of which most healthy peers publish on them."""
        every, count = self._manifest.shards, len(self.shards)
        if rates:
            most = 2 * median(rates.values())
            count = affordable_shards(fmean(min(rate, most) for rate in rates.values()), every)
        known = self._known()
        return frozenset(sorted(self._drawn(range(every)), key=lambda shard: -known[shard])[:count])

    def _bearable(self, rates: Mapping[int, float]) -> frozenset[int]:
        """Those of the followed shards that are bearable together, with most healthy peers for what they bring."""
        known = self._known()
        order = sorted(self._drawn(rates), key=lambda shard: rates[shard] / (known[shard] + 1))
        while len(order) > 1 and sum(rates[shard] for shard in order) > MESSAGES_PER_SECOND:
            order.pop()
        return frozenset(order)

    def _known(self) -> Counter[int]:
        """How many healthy peers publish on each shard in this epoch."""
        epoch = self._epoch or 0
        return Counter(shard_of(self._manifest, public_key_of(peer), epoch) for peer in self._ledger.healthy())

    def _drawn(self, shards: Mapping[int, float] | range) -> list[int]:
        """Shards in a random order, which decides among equals."""
        return self._rng.sample(sorted(shards), len(shards))
