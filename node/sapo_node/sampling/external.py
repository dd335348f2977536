"""The external part of a round: how many groups, which of them, masked where, and what the round says of them.

    external = ExternalSampler(...)
    split = external.split()                          # I and J
    choice = await external.choose(book.offered(), epoch=epoch)
    alarm = await external.observe(local, choice, trained)     # after the step
    external.save(step)

The parts below learn from rounds, and keep what they learnt through a restart (`memory`): pass rates, filters, the
local/external ratio, the weight of local groups, the strangers' share and the watch over the local reward.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import trio

from sapo_node.groups.messages import ExternalObjective, FilterName
from sapo_node.groups.record import LocalGroup, NotDrawn, VerifiedGroup
from sapo_node.sampling.alarm import Alarm, Exposure, RewardWatch
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.memory import Memory, Part
from sapo_node.sampling.mix import UNKNOWN, Costs, Split, ratio_of
from sapo_node.sampling.sampler import Sampler, WeightedGroup
from sapo_node.sampling.weights import LocalWeight, PassRates, Selection
from sapo_node.storage.database import Database
from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.limits import LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Choice:
    """The groups on offer that one round takes, and the others."""

    drawn: list[WeightedGroup]
    stand_ins: list[WeightedGroup]
    """The learner trains on them if filters leave nothing of a drawn group."""
    stopped: list[tuple[VerifiedGroup, FilterName]]
    """The groups of which a filter left nothing, with its name."""
    not_drawn: list[tuple[VerifiedGroup, NotDrawn]]
    """The groups on offer that were not drawn, and why."""
    reference: Sequence[VerifiedGroup]
    """The reference set for the worth of an external group."""
    supply: int
    """The number of groups that could be drawn."""


_RATES = "pass rates"


def saved_pass_rates(database: Database) -> PassRates:
    """Return the pass rates as the last round saved them. Raises StateError if the database is damaged."""
    pass_rates = PassRates()
    Memory(database, {_RATES: pass_rates})
    return pass_rates


class ExternalSampler:
    """SampleExternal of Algorithm 1, with all that it learns."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        rng: random.Random,
        *,
        local: int,
        external: int | Literal["auto"],
        filters: Sequence[str],
        selection: Selection,
        objective: ExternalObjective = "positive-only",
        limits: Limits = LIMITS,
        filters_type: type[Filters] = Filters,
        sampler_type: type[Sampler] = Sampler,
    ) -> None:
        """`local` and `external` are I and J as the operator set them."""
        self._ledger = ledger
        self._pass_rates = PassRates()
        self._filters = filters_type(filters, self._pass_rates, ledger.tier)
        self._ratio = ratio_of(local, external, self._pass_rates)
        self._exposure = Exposure(limits=limits)
        self._watch = RewardWatch(self._pass_rates)
        self._local_weight = LocalWeight(self._pass_rates, by_pass_rate="baseline" in filters, objective=objective)
        self._sampler = sampler_type(
            ledger,
            rng,
            self._pass_rates,
            selection,
            objective=objective,
            local_weight=self._local_weight,
            limits=limits,
        )
        parts: dict[str, Part] = {
            _RATES: self._pass_rates,
            "ratio": self._ratio,
            "local weight": self._local_weight,
            "exposure": self._exposure,
            "reward watch": self._watch,
        }
        self._memory = Memory(database, {**parts, **self._filters.by_name})

    def split(self) -> Split:
        """I and J of the next round."""
        return self._ratio.split()

    @property
    def wanted(self) -> int:
        """The number of groups to verify for the next round."""
        return max(self.split().external, self._ratio.probe)

    def tier_of(self, peer: str) -> Tier:
        """The tier of a peer by now."""
        return self._ledger.tier(peer)

    @property
    def strangers_share(self) -> float:
        """The part of the external groups that strangers may fill, between 0 and 1."""
        return self._exposure.share

    async def choose(self, groups: Sequence[VerifiedGroup], *, epoch: int) -> Choice:
        """Draw J of the groups on offer, and mask what the filters mask.

        Filters need seconds for many long texts. The other tasks of the node run between two steps of
        `Filters.looking`.
        """
        for _ in self._filters.looking(groups):
            await trio.lowlevel.checkpoint()
        offered, stopped = self._filters.judge(groups)
        draw = self._sampler.draw(offered, self.split().external, epoch=epoch, strangers=self._exposure.share)
        drawn = [await self._masked(each) for each in draw.groups]
        stand_ins = [await self._masked(each) for each in draw.stand_ins]
        reference = self._sampler.reference_set([each.group for each in offered])
        return Choice(
            drawn=drawn,
            stand_ins=stand_ins,
            stopped=stopped,
            not_drawn=draw.not_drawn,
            reference=reference,
            supply=len(offered),
        )

    async def _masked(self, drawn: WeightedGroup) -> WeightedGroup:
        await trio.lowlevel.checkpoint()
        return replace(drawn, silent=self._filters.mask(drawn.group), bounds=self._filters.bounds(drawn.group))

    async def observe(
        self,
        local: Sequence[LocalGroup],
        choice: Choice,
        trained: Collection[tuple[VerifiedGroup, Sequence[str]]],
        costs: Costs = UNKNOWN,
        judged: Collection[tuple[str, float]] = (),
    ) -> Alarm | None:
        """Learn from a round, and from what it took. `trained` has the external groups that were trained on, each with
        those of its correct completions that were. `judged` has the peer of each group that filters judged after the
        draw, and the accepted share. Returns the alarm that the round raises, if it raises one.

        As in `choose`, the other tasks of the node run between two groups.
        """
        self._ledger.judged([*judged, *((group.peer, 0.0) for group, _ in choice.stopped)])
        self._ratio.observe(local, choice.reference, supply=choice.supply, costs=costs)
        harm = self._watch.observe(local, external=len(trained))
        self._pass_rates.observe(local)
        self._local_weight.observe(local)
        for group, texts in trained:
            if texts:
                self._filters.trained(group, texts)
            await trio.lowlevel.checkpoint()
        for own in local:
            self._filters.observe([own])
            await trio.lowlevel.checkpoint()
        alarm = harm or self._filters.alarm()
        if harm:
            self._ratio.alarm()
        strangers = sum(self._ledger.tier(group.peer) is Tier.STRANGER for group, _ in trained)
        self._exposure.observe(strangers=strangers, alarm=alarm is not None)
        return alarm

    def save(self, step: int) -> None:
        """Keep what was learnt until this step."""
        self._memory.save(step)
