"""Real parts put together without processes or sockets."""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import trio

from sapo_node.groups.messages import GroupReport, Refusal, Sampled, TrainGroup, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.storage.row_files import NO_ROWS, Rows
from sapo_node.tasks import build_task, score, task_digest, worked_example
from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
from sapo_node.verification.sandbox.sandbox import with_rows
from sapo_protocol import Manifest

TRAINING = TrainReport(
    step=7,
    loss=-0.5,
    grad_norm=1.25,
    entropy=0.4,
    mean_length=20.5,
    truncated=0.125,
    zero_advantage=0.75,
    learning_rate=0.001,
    external_weight=0.7,
    local_tokens=300,
    external_tokens=200,
    groups={
        "local/0": GroupReport(300),
        "local/1": GroupReport(refused=Refusal.TOO_LONG),
        "a/10/0/0": GroupReport(200, 40, rejected={3: "min-token-prob"}),
    },
    skipped="no group has an advantage",
    seconds=2.0,
)
"""What a learner may say of a step."""


def trained_groups(groups: Iterable[TrainGroup], is_emptied: Callable[[str], bool]) -> list[TrainGroup]:
    """The groups that a learner trains on whose filters leave nothing of some groups, told by their ids."""
    return [group for group in groups if not group.stands_in or is_emptied(group.stands_in)]


class OpenScorer:
    """The project's own task builder and scorers, in this process: for text that the tests wrote themselves."""

    def __init__(self, rows: Rows = NO_ROWS) -> None:
        self._rows = rows

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        results: list[Scored | None] = []
        for request in with_rows(batch, self._rows):
            task = request.task or build_task(request.dataset, request.config, request.seed)
            levels = tuple(score(task, text, request.levels) for text in request.completions)
            example = worked_example(task) if request.example else ""
            results.append(Scored(task.prompt, task_digest(task.prompt, task.answer), levels, example))
        return results


@dataclass
class Oracle:
    """A policy that knows every answer and gives it now and then: a peer need not be a model."""

    manifest: Manifest
    rng: random.Random
    skill: float = 0.3
    step: int = 0
    seconds: float = 0.0
    """How long it takes to answer, on trio's clock."""
    training_seconds: tuple[float, float] = (0.0, 0.0)
    """What its reports say that each local group took, and each external one."""
    requests: list[TrainRequest] = field(default_factory=list)
    """Every request to train, in order."""
    best: list[int] = field(default_factory=list)
    """The steps of the best weights that are kept."""
    answers: dict[str, str] = field(default_factory=dict)

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int, averaged: bool = False
    ) -> list[tuple[Sampled, ...]]:
        await trio.sleep(self.seconds)
        groups = []
        for prompt in prompts:
            texts = [f"Let me see. <answer>{self._answer(prompt.text)}</answer>" for _ in range(completions)]
            groups.append(tuple(Sampled(text, "stop", (1, 2, 3)) for text in texts))
        return groups

    def _answer(self, prompt: str) -> str:
        return self.answers[prompt] if self.rng.random() < self.skill else "no idea"

    async def train(self, request: TrainRequest) -> TrainReport:
        assert request.step == self.step + 1
        self.step = request.step
        self.requests.append(request)
        reports = {group.id: GroupReport(10 if any(group.advantages) else 0) for group in request.placed}
        tokens = sum(each.tokens for each in reports.values())
        local, external = (
            each * sum(group.source == source for group in request.placed)
            for each, source in zip(self.training_seconds, ("local", "external"), strict=True)
        )
        return TrainReport(
            self.step,
            reports,
            1e-4,
            loss=0.1,
            entropy=1.0,
            local_tokens=tokens,
            local_seconds=local,
            external_seconds=external,
        )

    async def checkpoint(self) -> int:
        return self.step

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        assert step == self.step
        self.best = [*(kept for kept in self.best if kept in needed), step]

    async def restore(self, step: int) -> None:
        self.step = min(self.step, step)

    @property
    def trained(self) -> list[tuple[int, tuple[TrainGroup, ...]]]:
        """The step and the groups of every request to train."""
        return [(request.step, request.groups) for request in self.requests]


class KnowingScorer(OpenScorer):
    """Tells an Oracle the answers of the questions it builds."""

    def __init__(self, answers: dict[str, str], rows: Rows = NO_ROWS) -> None:
        super().__init__(rows)
        self._answers = answers

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        for request in with_rows(batch, self._rows):
            task = request.task or build_task(request.dataset, request.config, request.seed)
            self._answers[task.prompt] = task.answer
        return await super().score(batch)
