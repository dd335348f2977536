"""Chooses the shards that a node subscribes to: all of them, up to MESSAGES_PER_SECOND accepted messages.

Peer states are first-hand, and issuers change shards with every epoch. So a node that cannot follow all shards follows
those on which most of its healthy peers publish.

An attacker may have thousands of keys publish on one shard: keys are free. So the node measures each shard apart, and
within an epoch it drops the shards with the fewest healthy peers for their messages. In the next epoch the same keys
publish on other shards. For a new epoch the node expects the mean rate of the followed shards on each shard. A
shard counts for at most twice the median in that mean.
"""

import random
from collections import Counter
from collections.abc import Mapping
from statistics import fmean, median

from sapo_node.trust.ledger import Ledger
from sapo_protocol import Manifest, public_key_of, shard_of

MESSAGES_PER_SECOND = 16.0
"""Accepted messages of all followed shards, on average, at most. With their copies they cost an eighth of a core. 500
peers with a round every 30 s send as many."""
MEASURED_SECONDS = 30.0
"""A shorter time gives no rate."""


def affordable_shards(each: float, most: int) -> int:
    """The number of shards, of `most`, that a node follows if each brings `each` messages a second."""
    return most if each * most <= MESSAGES_PER_SECOND else max(1, int(MESSAGES_PER_SECOND / each))


class ShardSubscriptions:
    """The subscribed shards."""

    def __init__(self, manifest: Manifest, ledger: Ledger, rng: random.Random) -> None:
        self._manifest = manifest
        self._ledger = ledger
        self._rng = rng
        self._epoch: int | None = None
        self._since = 0.0
        self._before: Mapping[int, int] = {}
        self.shards = frozenset(range(manifest.shards))

    def at(self, now: float, epoch: int, accepted: Mapping[int, int]) -> frozenset[int]:
        """The shards to follow at `now` (seconds) in the current `epoch`. Their number rises only with a new epoch.

        `accepted` counts the gossiped messages that this node accepted since it started, by shard.
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
        """For a new epoch: as many shards as the expected rate allows, those with most healthy peers first."""
        every, count = self._manifest.shards, len(self.shards)
        if rates:
            most = 2 * median(rates.values())
            count = affordable_shards(fmean(min(rate, most) for rate in rates.values()), every)
        known = self._known()
        return frozenset(sorted(self._drawn(range(every)), key=lambda shard: -known[shard])[:count])

    def _bearable(self, rates: Mapping[int, float]) -> frozenset[int]:
        """The followed shards within MESSAGES_PER_SECOND, those with most healthy peers for their rate first."""
        known = self._known()
        order = sorted(self._drawn(rates), key=lambda shard: rates[shard] / (known[shard] + 1))
        while len(order) > 1 and sum(rates[shard] for shard in order) > MESSAGES_PER_SECOND:
            order.pop()
        return frozenset(order)

    def _known(self) -> Counter[int]:
        """The number of healthy peers that publish on each shard in this epoch."""
        epoch = self._epoch or 0
        return Counter(shard_of(self._manifest, public_key_of(peer), epoch) for peer in self._ledger.healthy())

    def _drawn(self, shards: Mapping[int, float] | range) -> list[int]:
        """The shards in random order: it decides between equal ones."""
        return self._rng.sample(sorted(shards), len(shards))
