"""A learner that costs nothing, where only trust is asked about: each task has one correct completion, one incorrect
one, and where it has levels one that earns a part.

Its policy is one logit per task of the correct completion, and one of the part; that of the incorrect one is 0. It
samples and learns by the same gradient of the same advantages as a language model, so that correct completions spread,
and incorrect ones that are rewarded do harm. Its skill can be read off: held-out pass@1 has no noise.
"""

import hashlib
import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from math import exp, log
from typing import Literal

import trio

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.pace import GENERATING, Meter
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.groups.messages import GroupReport, RequestError, Sampled, TrainGroup, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.tasks import score
from sapo_protocol import Manifest

START = 0.04
"""Pass rate of each task at the start: that of the packaged policy."""
START_PART = 0.16
"""Share of completions that earn a part, at the start, of a task with levels: parts are easier to find."""
RATE = 2.5
"""Logits a group of weight 1 moves its task by, for a unit of mean advantage x gradient, divided by the groups of a
round. Alone, a node is right half the time after about forty rounds, as the packaged policy at its default rate."""
FREEDOM = 6.0
"""Logits stay within this bound: no policy is ever certain."""

Kind = Literal["correct", "part"]
Logits = dict[tuple[str, Kind], float]
"""By dataset and kind of completion."""


class Bandit:
    """Implements `sapo_node.training.trainer.Policy`."""

    def __init__(self, simulation: Simulation, manifest: Manifest, number: int, scorer: SharedScorer) -> None:
        self._seed = f"{simulation.seed}/{number}"
        self._pace = simulation.members[number].round_seconds
        self._groups = simulation.groups
        self._scorer = scorer
        self._levels = {spec.dataset: spec.levels for spec in manifest.tasks}
        self._logits: Logits = {}
        for spec in manifest.tasks:
            rest = 1 - START - (START_PART if spec.levels > 1 else 0)
            self._logits[spec.dataset, "correct"] = log(START / rest)
            if spec.levels > 1:
                self._logits[spec.dataset, "part"] = log(START_PART / rest)
        self._step = 0
        self._checkpoints = deque([(0, dict(self._logits))], maxlen=2)
        self.meter = Meter()

    @property
    def step(self) -> int:
        """The number of updates."""
        return self._step

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int, averaged: bool = False
    ) -> list[tuple[Sampled, ...]]:
        """G completions for each prompt, correct with the probability of the policy."""
        del max_tokens, seed, averaged
        await trio.sleep(self._pace * GENERATING)
        digest = hashlib.sha256(f"{self._seed}/{self._step}".encode()).digest()
        rng = random.Random(digest)  # noqa: S311 - simulation
        groups = [tuple(self._answer(prompt.text, rng) for _ in range(completions)) for prompt in prompts]
        self.meter.generated_tokens += sum(len(each.text) for group in groups for each in group)
        return groups

    async def train(self, request: TrainRequest) -> TrainReport:
        """One update. By default only the correct completions of external groups count; see `ExternalObjective`."""
        await trio.sleep(self._pace * (1 - GENERATING))
        moves: Logits = {}
        tokens: dict[str, int] = {}
        for group in request.placed:
            dataset = self._scorer.tasks[group.prompt].dataset
            only_positive = group.source == "external" and request.objective == "positive-only"
            counted = [
                (advantage, completion.text)
                for advantage, completion in zip(group.advantages, group.completions, strict=True)
                if advantage and not (only_positive and advantage < 0)
            ]
            shares = self._shares(dataset)
            said = [(advantage, self._kind(group.prompt, text)) for advantage, text in counted]
            for kind, share in shares.items():
                slope = sum(advantage * ((each == kind) - share) for advantage, each in said)
                place = dataset, kind
                moves[place] = moves.get(place, 0.0) + group.weight * slope / len(group.completions)
            tokens[group.id] = sum(len(text) for _, text in counted)
        for place, move in moves.items():
            logit = self._logits[place] + RATE * move / self._groups
            self._logits[place] = max(-FREEDOM, min(FREEDOM, logit))
        self._step = request.step
        return _report(request.step, request.placed, tokens)

    async def checkpoint(self) -> int:
        """Keep the logits, beside those of the checkpoint before."""
        if self._checkpoints[-1][0] < self._step:
            self._checkpoints.append((self._step, dict(self._logits)))
        return self._step

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        """Nothing: no evaluation of a simulated node asks for it."""

    async def restore(self, step: int) -> None:
        """Go back to the logits of a checkpoint, or for step 0 to the initial ones, and drop all later checkpoints."""
        if self._step <= step:
            return
        if step not in dict(self._checkpoints):
            raise RequestError(f"there is no checkpoint of step {step}")
        while self._checkpoints[-1][0] > step:
            self._checkpoints.pop()
        self._step, logits = self._checkpoints[-1]
        self._logits = dict(logits)

    def examine(self, scorer: SharedScorer, prompts: int, *, averaged: bool = False) -> dict[str, float]:
        """Held-out pass@1 by dataset: the exact probabilities of the policy."""
        del scorer, prompts, averaged
        return {dataset: self._shares(dataset)["correct"] for dataset in self._levels}

    def _answer(self, prompt: str, rng: random.Random) -> Sampled:
        task = self._scorer.tasks[prompt]
        shares, draw = self._shares(task.dataset), rng.random()
        answer = "unknown"
        if draw < shares["correct"]:
            answer = task.answer
        elif draw < sum(shares.values()):
            answer = task.answer[:-1]
        text = f"So it is {rng.randrange(1000)}. <answer>{answer}</answer>"
        return Sampled(text, "stop", tuple(text.encode()))

    def _shares(self, dataset: str) -> dict[Kind, float]:
        """The probabilities of a correct completion, and in a task with levels of one that earns a part."""
        kinds: tuple[Kind, ...] = ("correct", "part") if self._levels[dataset] > 1 else ("correct",)
        weights = {kind: exp(self._logits[dataset, kind]) for kind in kinds}
        return {kind: weight / (1 + sum(weights.values())) for kind, weight in weights.items()}

    def _kind(self, prompt: str, text: str) -> Kind | None:
        """The kind of a completion; None if it earns nothing."""
        task = self._scorer.tasks[prompt]
        top = self._levels[task.dataset]
        level = score(task, text, top)
        return "correct" if level == top else "part" if level else None


def _report(step: int, groups: Sequence[TrainGroup], tokens: Mapping[str, int]) -> TrainReport:
    """Return the report of a step, given the trained tokens of each group by its id."""
    external = [group for group in groups if group.source == "external"]
    taken = sum(tokens[group.id] for group in external)
    weights = [group.weight for group in external]
    return TrainReport(
        step=step,
        groups={name: GroupReport(count) for name, count in tokens.items()},
        learning_rate=RATE,
        external_weight=sum(weights) / len(weights) if weights else None,
        local_tokens=sum(tokens.values()) - taken,
        external_tokens=taken,
    )
