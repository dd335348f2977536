"""SampleExternal of Algorithm 1: which verified groups of others this round trains on, and with what weight.

The paper's rule first: groups without advantage are out (they never enter the pool), then J are drawn. The draw is
weighted by trust and age. Three bounds keep any draw harmless, counted in training mass = sum of |advantage| x
completion bytes, since whoever knows the answers can make every group informative:

- one group: at most MASS_LIMIT times the median on offer, else its weight is scaled down;
- one peer: at most its share of J, though never less than one group;
- all newcomers and peers on probation together: a fractional credit that grows by a tenth of J each round.

What stays unfilled shrinks J towards 0: a swarm full of liars leaves a node as it would be alone.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sapo_node.advantage import advantages
from sapo_node.trust import policy
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.policy import Standing
from sapo_node.verify import VerifiedGroup

_LEAST_SHARE = 0.25
"""A group that fits into what is left only with less than this is kept for another round, not spent on a trace."""


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A verified group that was drawn, and what it counts in the loss. Made only by `Sampler.draw`."""

    group: VerifiedGroup
    weight: float
    """Between 0 and 1; local groups weigh 1."""
    advantages: tuple[float, ...]


class Sampler:
    """Draws external groups within the bounds of the trust policy."""

    def __init__(self, ledger: Ledger, rng: random.Random) -> None:
        self._ledger = ledger
        self._rng = rng
        self._newcomer_credit = 0.0

    def draw(self, offered: Sequence[VerifiedGroup], count: int, *, epoch: int) -> list[WeightedGroup]:
        """At most `count` groups (J) of those on offer, in the order drawn."""
        self._newcomer_credit = min(policy.NEWCOMER_CREDIT_LIMIT, self._newcomer_credit + policy.NEWCOMER_SHARE * count)
        fresh = [group for group in offered if epoch - group.epoch <= policy.MAX_AGE]
        if not fresh or count == 0:
            return []
        unit = median(mass(group) for group in fresh)
        peer_budget: defaultdict[str, float] = defaultdict(lambda: max(1.0, policy.PEER_SHARE * count))
        drawn: list[WeightedGroup] = []
        for group in self._order(fresh, epoch):
            if len(drawn) == count:
                break
            units = mass(group) / unit
            share = min(1.0, policy.MASS_LIMIT / units, peer_budget[group.peer] / units)
            if share < _LEAST_SHARE or not self._affords(group.peer, share * units):
                continue
            peer_budget[group.peer] -= share * units
            weight = share * policy.AGE_WEIGHT ** max(0, epoch - group.epoch)
            drawn.append(WeightedGroup(group, weight, advantages(group.rewards)))
        return drawn

    def _order(self, groups: list[VerifiedGroup], epoch: int) -> list[VerifiedGroup]:
        """A random order without replacement, weighted by trust and age (Efraimidis and Spirakis 2006)."""
        keyed = []
        for group in groups:
            weight = self._ledger.of(group.peer).trust * policy.AGE_WEIGHT ** max(0, epoch - group.epoch)
            keyed.append((self._rng.random() ** (1 / weight), group))
        return [group for _, group in sorted(keyed, key=lambda pair: pair[0], reverse=True)]

    def _affords(self, peer: str, units: float) -> bool:
        """Whether the peer's class may still spend; the shared credit may overdraw by part of a group and pays it
        back.
        """
        standing = self._ledger.of(peer).standing
        if standing is Standing.HEALTHY:
            return True
        if standing is Standing.BANNED or self._newcomer_credit < 1:
            return False
        self._newcomer_credit -= units
        return True


def mass(group: VerifiedGroup) -> float:
    """Training mass of a group: sum over its completions of |advantage| x UTF-8 bytes; never 0."""
    pairs = zip(advantages(group.rewards), group.completions, strict=True)
    return sum(abs(advantage) * (1 + len(completion.text.encode())) for advantage, completion in pairs)
