"""Control arms: what a node could do alone with the same budget, so that a gain can be attributed to sharing.

Each is a policy that trains on another batch than the one its node hands it. None shares or takes external groups (J =
0), and the denominator of the loss is that of every other arm.
"""

import random
from collections import deque
from dataclasses import replace
from pathlib import Path

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.learning import SimulatedLearner
from sapo_adversary.simulator.prompts import heldout_prompts
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import GroupReport, TrainGroup, TrainReport, TrainRequest
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import ASSIGNED_SEEDS, Manifest

KEPT = 64
"""Earlier informative groups that `Replaying` draws from: as many as a node's pool keeps of one peer."""
OVERSAMPLED = 4
"""`Oversampling` generates this many times the groups of a full round: those of 8/0, 256 completions in all."""


class Replaying(SimulatedLearner):
    """4/0+replay: fills the places of J with informative groups of its own earlier rounds, each used once more.

    They enter as external groups do (text encoded again, the same correction), so that reuse is the only part of
    sharing that is left.
    """

    def __init__(
        self, simulation: Simulation, manifest: Manifest, number: int, policies: Path, scorer: SharedScorer
    ) -> None:
        super().__init__(simulation, manifest, number, policies, scorer)
        self._rng = random.Random(f"replay/{simulation.seed}/{number}")  # noqa: S311 - simulation
        self._places = simulation.groups - simulation.members[number].local
        self._kept: deque[TrainGroup] = deque(maxlen=KEPT)

    async def train(self, request: TrainRequest) -> TrainReport:
        """One update on the round's groups and on up to J earlier ones."""
        again = self._rng.sample(self._kept, min(self._places, len(self._kept)))
        for group in again:
            self._kept.remove(group)
        self._kept.extend(_as_external(group) for group in request.groups if any(group.advantages))
        return _on_account_of(request, await super().train(replace(request, groups=(*request.groups, *again))))


class Filtering(SimulatedLearner):
    """8/0+filter: drops zero-advantage groups and fills their places with the kept groups again, in turn.

    With a constant denominator dropping alone changes nothing, since a zero-advantage group has no gradient. Filling
    the places gives the gradient of a mean over the kept groups.
    """

    async def train(self, request: TrainRequest) -> TrainReport:
        """One update on as many groups as came, all of them informative, if any is."""
        kept = [group for group in request.groups if any(group.advantages)]
        filled = [kept[place % len(kept)] for place in range(len(request.groups))] if kept else []
        unnamed = tuple(replace(group, id="") for group in filled)
        return _on_account_of(request, await super().train(replace(request, groups=unnamed)))


class Oversampling(SimulatedLearner):
    """8/0+filter-unlimited: generates four times as much and trains on up to a full round of informative groups."""

    def __init__(
        self, simulation: Simulation, manifest: Manifest, number: int, policies: Path, scorer: SharedScorer
    ) -> None:
        super().__init__(simulation, manifest, number, policies, scorer)
        self._rng = random.Random(f"oversample/{simulation.seed}/{number}")  # noqa: S311 - simulation
        self._scorer = scorer
        self._groups = simulation.groups
        self._held_out = heldout_prompts(simulation, manifest, scorer)

    async def train(self, request: TrainRequest) -> TrainReport:
        """One update on the round's informative groups and on those of further tasks of the same kinds."""
        further = self._more((OVERSAMPLED - 1) * len(request.groups))
        kept = tuple(group for group in [*request.groups, *further] if any(group.advantages))
        return _on_account_of(request, await super().train(replace(request, groups=kept[: self._groups])))

    def _more(self, count: int) -> list[TrainGroup]:
        weights = [spec.weight for spec in self._manifest.tasks]
        specs = self._rng.choices(self._manifest.tasks, weights, k=count)
        asked = [
            ScoreRequest(spec.dataset, spec.config, self._rng.randrange(ASSIGNED_SEEDS), (), levels=spec.levels)
            for spec in specs
        ]
        prompts = [self._examples.prompt(each.dataset, self._scorer.result(each).prompt) for each in asked]
        sampled = self.sample(
            prompts, completions=self._manifest.completions, max_tokens=self._max_tokens, purpose="more"
        )
        groups = []
        for request, prompt, group in zip(asked, prompts, sampled, strict=True):
            texts = tuple(each.text for each in group)
            levels = Levels(self._scorer.result(replace(request, completions=texts)).levels, request.levels)
            if prompt.text not in self._held_out:
                groups.append(
                    TrainGroup(
                        source="local",
                        prompt=prompt.text,
                        weight=1.0,
                        advantages=local_advantages(levels),
                        completions=group,
                        examples=prompt.examples,
                    )
                )
        return groups


def model_for(
    simulation: Simulation, manifest: Manifest, number: int, policies: Path, scorer: SharedScorer
) -> SimulatedLearner:
    """The language model of a node: the plain learner, or the control that its specification names."""
    control = simulation.members[number].control
    if control == "oversample":
        return Oversampling(simulation, manifest, number, policies, scorer)
    kinds: dict[str, type[SimulatedLearner]] = {"replay": Replaying, "filter": Filtering}
    return kinds.get(control, SimulatedLearner)(simulation, manifest, number, policies, scorer)


def _on_account_of(request: TrainRequest, report: TrainReport) -> TrainReport:
    """A report for the batch that the node handed over: all tokens were its own, whichever groups they came from."""
    total = GroupReport(sum(group.tokens for group in report.groups.values()))
    first, *others = (group.id for group in request.groups)
    return replace(report, groups={first: total, **dict.fromkeys(others, GroupReport())})


def _as_external(group: TrainGroup) -> TrainGroup:
    completions = tuple(replace(each, tokens=None) for each in group.completions)
    return replace(group, source="external", completions=completions, id="")
