"""SampleExternal of Algorithm 1: which external groups this round trains on, and with what loss weight.

Zero-advantage groups never enter the pool, as in the paper. The sampler draws J groups, by default weighted by trust
and age; `selection` has the other rules. Four bounds hold for every draw. They count loss weight = sum of |advantage| x
completion bytes, because a peer that knows the answers can make every group informative:

- one group: at most MASS_LIMIT times the median of healthy peers' groups on offer, else its weight is scaled down;
- one peer: at most its share of J, though never less than one group;
- all peers promoted in one epoch: a quarter of J, or their share by heads of all healthy if that is more,
  since keys of one hand become healthy together;
- all untrusted peers and peers on probation together: a fractional credit that grows by a tenth of J each round.

Places that stay empty shrink J towards 0: in a swarm of malicious peers a node learns as it would alone.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from statistics import median

from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import FilterName
from sapo_node.groups.types import VerifiedGroup
from sapo_node.sampling.filters import Offered
from sapo_node.sampling.filters.interface import Span
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.weights import Selection, own_advantages, preference
from sapo_node.trust import constants
from sapo_node.trust.constants import PeerState
from sapo_node.trust.defences import DEFENDED, Defences
from sapo_node.trust.ledger import Ledger

_LEAST_SHARE = 0.25
"""A group that fits into what is left only with less than this is kept for another round, not spent on a trace."""


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A verified group that was drawn, and what it counts in the loss. Made only by `Sampler.draw`; what is `silent` a
    round adds.
    """

    group: VerifiedGroup
    weight: float
    """Between 0 and 1; local groups weigh 1."""
    advantages: tuple[float, ...]
    silent: tuple[tuple[Span, ...], ...] = ()
    """For each completion, the characters of it that are not taught; empty where there are none in any."""
    stopped: Mapping[int, FilterName] = field(default_factory=dict)
    """The rejected correct completions, by number, and the filter that rejected each."""


class NotDrawn(StrEnum):
    """Why a group on offer was not drawn; it may be another time, while it is young enough."""

    ENOUGH = "enough others were drawn"
    PEER_SHARE = "its peer, or those promoted with it, had their share of this round"
    UNTRUSTED = "untrusted peers had their share of this round"
    TOO_OLD = "too old to be trained on"
    NONE_WANTED = "this round wanted none"


@dataclass(frozen=True, slots=True)
class Draw:
    """What one round takes of what was on offer."""

    groups: list[WeightedGroup]
    """In the order drawn."""
    not_drawn: list[tuple[VerifiedGroup, NotDrawn]]


class _Room:
    """What each peer and each cohort may still take in one draw, in groups of the usual mass."""

    def __init__(self, ledger: Ledger, count: int, defences: Defences) -> None:
        self._ledger = ledger
        self._peers: defaultdict[str, float] = defaultdict(lambda: max(1.0, defences.peer_share * count))
        heads = Counter(each.cohort for each in ledger.accounts() if each.state is PeerState.HEALTHY)
        self._cohorts = {
            cohort: max(1.0, max(defences.cohort_share, number / heads.total()) * count)
            for cohort, number in heads.items()
            if cohort is not None
        }

    def left(self, peer: str) -> float:
        cohort = self._ledger.of(peer).cohort
        return self._peers[peer] if cohort is None else min(self._peers[peer], self._cohorts[cohort])

    def take(self, peer: str, units: float) -> None:
        self._peers[peer] -= units
        cohort = self._ledger.of(peer).cohort
        if cohort is not None:
            self._cohorts[cohort] -= units


class Sampler:
    """Draws external groups within the bounds of the trust policy."""

    def __init__(
        self,
        ledger: Ledger,
        rng: random.Random,
        pass_rates: PassRates,
        selection: Selection,
        *,
        defences: Defences = DEFENDED,
    ) -> None:
        self._ledger = ledger
        self._pass_rates = pass_rates
        self._selection = selection
        self._rng = rng
        self._defences = defences
        self._untrusted_credit = 0.0

    def draw(self, offered: Sequence[Offered], count: int, *, epoch: int) -> Draw:
        """At most `count` groups (J) of those on offer."""
        defences = self._defences
        self._untrusted_credit = min(
            defences.untrusted_credit_limit, self._untrusted_credit + defences.untrusted_share * count
        )
        groups = [each.group for each in offered]
        fresh = [group for group in groups if epoch - group.epoch <= defences.max_age]
        passed = [(group, NotDrawn.TOO_OLD) for group in groups if epoch - group.epoch > defences.max_age]
        if not fresh or count == 0:
            return Draw([], [*passed, *((group, NotDrawn.NONE_WANTED) for group in fresh)])
        counted = {each.group.place: (each, each.advantages(self._advantages(each.group))) for each in offered}
        loss_weights = {group.place: loss_weight(counted[group.place][1], group.lengths) for group in fresh}
        unit = median(loss_weights[group.place] for group in self.reference_set(fresh))
        room = _Room(self._ledger, count, defences)
        drawn: list[WeightedGroup] = []
        for group in self._order(fresh, epoch):
            if len(drawn) == count:
                passed.append((group, NotDrawn.ENOUGH))
                continue
            units = loss_weights[group.place] / unit
            share = min(1.0, defences.mass_limit / units, room.left(group.peer) / units)
            if share < _LEAST_SHARE:
                passed.append((group, NotDrawn.PEER_SHARE))
            elif not self._affords(group.peer, share * units):
                passed.append((group, NotDrawn.UNTRUSTED))
            else:
                room.take(group.peer, share * units)
                weight = share * constants.AGE_WEIGHT ** max(0, epoch - group.epoch)
                each, weighed = counted[group.place]
                drawn.append(WeightedGroup(group, weight, weighed, stopped=each.rejected))
        return Draw(drawn, passed)

    def reference_set(self, groups: Sequence[VerifiedGroup]) -> Sequence[VerifiedGroup]:
        """The groups by which all are measured: those of healthy peers, if there are any. Untrusted peers could
        shift the median: many light groups would make all others look too heavy, and many long ones would look light.
        """
        if not self._defences.healthy_reference:
            return groups
        return [group for group in groups if self._ledger.state(group.peer) is PeerState.HEALTHY] or groups

    def _order(self, groups: list[VerifiedGroup], epoch: int) -> list[VerifiedGroup]:
        """A random order without replacement, by weight (Efraimidis and Spirakis 2006)."""
        keyed = [(self._rng.random() ** (1 / self._preference(group, epoch)), group) for group in groups]
        return [group for _, group in sorted(keyed, key=itemgetter(0), reverse=True)]

    def _preference(self, group: VerifiedGroup, epoch: int) -> float:
        if self._selection == "uniform":
            return 1.0
        weight = self._ledger.of(group.peer).trust * constants.AGE_WEIGHT ** max(0, epoch - group.epoch)
        return weight * preference(group, self._pass_rates) if self._selection == "informative" else weight

    def _advantages(self, group: VerifiedGroup) -> tuple[float, ...]:
        """Those of a group without filters."""
        if self._selection == "informative":
            return own_advantages(group.rewards, self._pass_rates.pass_rate(group.dataset))
        return advantages(group.rewards)

    def _affords(self, peer: str, units: float) -> bool:
        """Whether the peer's class may still spend; the shared credit may overdraw by part of a group and pays it
        back. However little weight an untrusted peer's group has, it takes the place of one.
        """
        state = self._ledger.state(peer)
        if state is PeerState.HEALTHY:
            return True
        if state is PeerState.BANNED or self._untrusted_credit < 1:
            return False
        self._untrusted_credit -= max(1.0, units)
        return True


def loss_weight(weighed: Sequence[float], lengths: Sequence[int]) -> float:
    """Training mass of a group: sum over its completions of |advantage| x UTF-8 bytes, with one byte for each end;
    never 0.
    """
    return max(1.0, sum(abs(advantage) * (1 + length) for advantage, length in zip(weighed, lengths, strict=True)))
