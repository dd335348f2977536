"""A learner that costs nothing, where only trust is asked about: each task has one correct and one incorrect
completion.

Its policy is one logit per task, of the correct completion. It samples and learns by the same gradient of the same
advantages as a language model, so that correct completions spread, and incorrect ones that are rewarded do harm. Its
skill can be read off: held-out pass@1 has no noise.
"""

import hashlib
import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from math import exp, log

import trio

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.pace import GENERATING, Meter
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.groups.messages import GroupReport, RequestError, Sampled, TrainGroup, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_protocol import Manifest

START = 0.04
"""Pass rate of each task at the start: that of the packaged policy."""
RATE = 2.5
"""Logits a group of weight 1 moves its task by, for a unit of mean advantage x gradient, divided by the groups of a
round. Alone, a node is right half the time after about forty rounds, as the packaged policy at its default rate."""
FREEDOM = 6.0
"""Logits stay within this bound: no policy is ever certain."""


class Bandit:
    """Implements `sapo_node.training.trainer.Policy`."""

    def __init__(self, simulation: Simulation, manifest: Manifest, number: int, scorer: SharedScorer) -> None:
        self._seed = f"{simulation.seed}/{number}"
        self._pace = simulation.members[number].round_seconds
        self._groups = simulation.groups
        self._scorer = scorer
        self._logits = {spec.dataset: log(START / (1 - START)) for spec in manifest.tasks}
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
        moves: dict[str, float] = {}
        tokens: dict[str, int] = {}
        for group in request.placed:
            dataset = self._scorer.tasks[group.prompt].dataset
            only_positive = group.source == "external" and request.objective == "positive-only"
            counted = [
                (advantage, completion.text)
                for advantage, completion in zip(group.advantages, group.completions, strict=True)
                if advantage and not (only_positive and advantage < 0)
            ]
            rate = _sigmoid(self._logits[dataset])
            slopes = [
                advantage * ((1 - rate) if self._scorer.is_right(group.prompt, text) else -rate)
                for advantage, text in counted
            ]
            moves[dataset] = moves.get(dataset, 0.0) + group.weight * sum(slopes) / len(group.completions)
            tokens[group.id] = sum(len(text) for _, text in counted)
        for dataset, move in moves.items():
            logit = self._logits[dataset] + RATE * move / self._groups
            self._logits[dataset] = max(-FREEDOM, min(FREEDOM, logit))
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
        return {dataset: _sigmoid(logit) for dataset, logit in self._logits.items()}

    def _answer(self, prompt: str, rng: random.Random) -> Sampled:
        task = self._scorer.tasks[prompt]
        right = rng.random() < _sigmoid(self._logits[task.dataset])
        text = f"So it is {rng.randrange(1000)}. <answer>{task.answer if right else 'unknown'}</answer>"
        return Sampled(text, "stop", tuple(text.encode()))


def _sigmoid(logit: float) -> float:
    return 1 / (1 + exp(-logit))


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
