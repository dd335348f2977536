"""SampleExternal of Algorithm 1: draws the external groups of a round, and sets their loss weights.

Zero-advantage groups are never on offer, as in the paper. The sampler draws J groups at random, by default weighted
by trust and age; `selection` has the other rules. Two bounds hold for every draw. Neither counts keys, which cost
nothing. They count loss weight = sum of |advantage| x bytes of the completions that the loss counts, because a peer
that knows the answers can make every group informative:

- one group: at most LOSS_WEIGHT_LIMIT units, else its weight is scaled down;
- all strangers together: their share of J units (`alarm.Exposure`), though never less than one group.

A unit is the median of the groups on offer of friends and proven peers, or of all if these offer none, but at least
the weight of a local group (`LocalWeight`) and at most LOCAL_RANGE times that. A peer is proven after sixteen groups.
Without these bounds one proven peer could choose the unit: with one light group it would make those of all strangers
look too heavy.

All drawn groups and their stand-ins have at most DRAWN_BYTES of text.

No group fills a place that stays empty: in a swarm of malicious peers a node learns as it would alone.

Two filters need the policy's probabilities, so the learner applies them after the draw. If they leave nothing of a
drawn group, it would take the place of another one. So each may have a stand-in, of another peer on the same side of
the strangers' share: the learner trains on it if nothing of the drawn group is left. Else the stand-in waits for
another round. A peer of which filters reject much takes part in fewer draws (`constants.Acceptance`).
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from operator import itemgetter
from statistics import fmean, median

from sapo_node.groups.advantage import external_advantages
from sapo_node.groups.messages import Bounds, ExternalObjective, FilterName
from sapo_node.groups.record import GroupKey, NotDrawn, Span, VerifiedGroup
from sapo_node.sampling.filters import Offered
from sapo_node.sampling.weights import (
    LocalWeight,
    PassRates,
    Selection,
    external_worth,
    loss_weight,
    own_advantages,
    preference,
)
from sapo_node.trust import constants
from sapo_node.trust.constants import PeerState, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.limits import LIMITS, Limits

_LEAST_SHARE = 0.25
"""A group of which less than this share would fit waits for another round with more room."""
_LEAST_RANDOM = 2**-54
"""Below every number that `random()` gives but 0, which has no logarithm."""


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A drawn group with its part in the loss. Only `Sampler.draw` makes one, and
    `ExternalSampler.choose` adds what is `silent` and the `bounds`.
    """

    group: VerifiedGroup
    weight: float
    """Between 0 and 1; local groups weigh 1."""
    advantages: tuple[float, ...]
    silent: tuple[tuple[Span, ...], ...] = ()
    """For each completion, its masked characters; empty if no completion has any."""
    stopped: Mapping[int, FilterName] = field(default_factory=dict)
    """The rejected correct completions, by number, and the filter that rejected each."""
    stands_in: VerifiedGroup | None = None
    """The drawn group for which this one stands in; None for a drawn group."""
    bounds: Bounds = Bounds()
    """The learner applies them to the correct completions of the group."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The groups on offer that one round takes, and the others."""

    groups: list[WeightedGroup]
    """In the order drawn."""
    stand_ins: list[WeightedGroup]
    """At most one for each of `groups`."""
    not_drawn: list[tuple[VerifiedGroup, NotDrawn]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A group on offer, weighed."""

    offered: Offered
    advantages: tuple[float, ...]
    units: float
    """Its loss weight, as a multiple of the unit."""
    is_stranger: bool

    @property
    def group(self) -> VerifiedGroup:
        return self.offered.group

    def share(self, limit: float, *, room: float, whole: float) -> float:
        """Return the part of it that counts: at most `limit` units, and for a stranger's group at most `room`. 0 if
        only a trace of it fits, and more of it would fit into the `whole` room of another round.
        """
        share = min(1.0, limit / self.units)
        if self.is_stranger:
            # However little weight a stranger's group has, it takes the place of one.
            least = min(_LEAST_SHARE, share, whole / max(1.0, self.units))
            share = min(share, room / max(1.0, self.units))
            return share if share >= least else 0.0
        return share

    def room(self, share: float) -> float:
        """Return the units of the strangers' room that it takes."""
        return max(1.0, share * self.units)

    def weighted(self, share: float, epoch: int) -> WeightedGroup:
        """Return the group as it is drawn in an epoch."""
        weight = share * constants.AGE_WEIGHT ** max(0, epoch - self.group.epoch)
        return WeightedGroup(group=self.group, weight=weight, advantages=self.advantages, stopped=self.offered.rejected)


class Sampler:
    """Draws external groups within the bounds of the trust policy."""

    def __init__(
        self,
        ledger: Ledger,
        rng: random.Random,
        pass_rates: PassRates,
        selection: Selection,
        *,
        objective: ExternalObjective = "positive-only",
        local_weight: LocalWeight | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Without `local_weight` the groups on offer alone make the unit."""
        self._objective: ExternalObjective = objective
        self._local_weight = local_weight
        self._ledger = ledger
        self._pass_rates = pass_rates
        self._selection = selection
        self._rng = rng
        self._limits = limits

    def draw(self, offered: Sequence[Offered], count: int, *, epoch: int, strangers: float) -> Draw:
        """Draw at most `count` groups (J) of those on offer, of which strangers fill at most the share `strangers`, and
        at most one stand-in for each.
        """
        why = {each.group.key: self._passed(each.group, count, epoch) for each in offered}
        fresh = [each for each in offered if not why[each.group.key]]
        passed = [(each.group, reason) for each in offered if (reason := why[each.group.key])]
        if not fresh:
            return Draw([], [], passed)
        room = whole = max(1.0, strangers * count) if strangers < 1 else inf
        space = constants.DRAWN_BYTES
        drawn: list[WeightedGroup] = []
        places: list[tuple[_Candidate, float]] = []
        waiting: list[tuple[_Candidate, NotDrawn]] = []
        for each in self._candidates(fresh, epoch):
            share = each.share(self._limits.loss_weight, room=room, whole=whole)
            if self._ledger.state(each.group.peer) is PeerState.BANNED:
                passed.append((each.group, NotDrawn.BANNED))
            elif len(drawn) == count:
                waiting.append((each, NotDrawn.ENOUGH))
            elif not share:
                waiting.append((each, NotDrawn.STRANGERS))
            elif each.group.size > space:
                waiting.append((each, NotDrawn.TOO_LARGE))
            else:
                drawn.append(each.weighted(share, epoch))
                places.append((each, min(room, each.room(share))))
                room -= each.room(share) if each.is_stranger else 0.0
                space -= each.group.size
        stand_ins: list[WeightedGroup] = []
        for place in places:
            if found := self._stand_in(*place, waiting, epoch, space=space):
                stand_ins.append(found)
                space -= found.group.size
        return Draw(drawn, stand_ins, [*passed, *((each.group, reason) for each, reason in waiting)])

    def _stand_in(
        self, drawn: _Candidate, room: float, waiting: list[tuple[_Candidate, NotDrawn]], epoch: int, *, space: int
    ) -> WeightedGroup | None:
        """Take a stand-in for a drawn group out of those that wait: of another peer, because filters that leave nothing
        of one group of a peer often leave nothing of its next one. It takes no more of the strangers' room, and has at
        most `space` bytes.
        """
        for number, (each, _) in enumerate(waiting):
            share = each.share(self._limits.loss_weight, room=room, whole=room)
            is_alike = each.is_stranger == drawn.is_stranger and each.group.peer != drawn.group.peer
            if is_alike and share and each.group.size <= space:
                del waiting[number]
                return replace(each.weighted(share, epoch), stands_in=drawn.group)
        return None

    def _candidates(self, fresh: Sequence[Offered], epoch: int) -> "list[_Candidate]":
        """Return the groups in the order of the draw, weighed."""
        counted = {each.group.key: (each, each.advantages(self._advantages(each.group))) for each in fresh}
        groups = [each.group for each in fresh]
        weights = {group.key: loss_weight(counted[group.key][1], group.lengths, self._objective) for group in groups}
        unit = self._unit(groups, weights)
        return [
            _Candidate(
                offered=counted[group.key][0],
                advantages=counted[group.key][1],
                units=weights[group.key] / unit,
                is_stranger=self._ledger.tier(group.peer) is Tier.STRANGER,
            )
            for group in self._order(groups, epoch)
        ]

    def _unit(self, groups: Sequence[VerifiedGroup], weights: Mapping[GroupKey, float]) -> float:
        """Return the unit of all loss weights, given the weight of each group. Strangers have no part in it if
        other peers offer groups: many light groups would make all others look too heavy, and many long ones too light.
        """
        known = [group for group in groups if self._ledger.tier(group.peer) is not Tier.STRANGER]
        unit = median(weights[group.key] for group in known or groups)
        local = self._local_weight.value if self._local_weight else None
        return unit if local is None else min(max(unit, local), constants.LOCAL_RANGE * local)

    def reference_set(self, groups: Sequence[VerifiedGroup]) -> Sequence[VerifiedGroup]:
        """Return the reference set for the worth of an external group (`mix`): the groups of the tier with the highest
        worth. Else a few peers with one correct completion in each group could make the node take fewer groups of all.
        """
        tiers: defaultdict[Tier, list[VerifiedGroup]] = defaultdict(list)
        for group in groups:
            tiers[self._ledger.tier(group.peer)].append(group)
        if not tiers:
            return groups
        return max(tiers.values(), key=lambda each: fmean(external_worth(group, self._pass_rates) for group in each))

    def _passed(self, group: VerifiedGroup, count: int, epoch: int) -> NotDrawn | None:
        """Return the reason for which a group takes no part in a draw of `count` groups; None if it takes part."""
        if group.epoch < epoch - self._limits.max_age:
            return NotDrawn.TOO_OLD
        if count == 0:
            return NotDrawn.NONE_WANTED
        chance = self._ledger.of(group.peer).acceptance.chance
        return None if chance == 1 or self._rng.random() < chance else NotDrawn.SELDOM_ACCEPTED

    def _order(self, groups: list[VerifiedGroup], epoch: int) -> list[VerifiedGroup]:
        """Return a random order without replacement, by weight (Efraimidis and Spirakis 2006).

        The groups of one rollout share the weight of one: a peer that knows the answers can make each of its groups
        informative, and would else be drawn more often than an honest peer.
        """
        siblings = Counter(group.rollout for group in groups)
        # The logarithm of the usual key u ** (1 / weight): if the weight is small, every such key would be 0.
        keyed = [
            (log(self._rng.random() or _LEAST_RANDOM) * siblings[group.rollout] / self._preference(group, epoch), group)
            for group in groups
        ]
        return [group for _, group in sorted(keyed, key=itemgetter(0), reverse=True)]

    def _preference(self, group: VerifiedGroup, epoch: int) -> float:
        if self._selection == "uniform":
            return 1.0
        weight = self._ledger.of(group.peer).trust * constants.AGE_WEIGHT ** max(0, epoch - group.epoch)
        return weight * preference(group, self._pass_rates) if self._selection == "informative" else weight

    def _advantages(self, group: VerifiedGroup) -> tuple[float, ...]:
        """Return the advantages of a group without filters."""
        if self._selection == "informative":
            return own_advantages(group.levels, self._pass_rates.pass_rate(group.dataset))
        return external_advantages(group.levels)
