"""One scorer for a whole simulated swarm: the node's own tasks and scorers in this process, each text scored
once.

Every node of a swarm rebuilds the same tasks and scores the same texts. Both are pure functions of the request, so that
the results can be shared:

    scorer = SharedScorer()                  # SharedScorer(rows) if tasks come from files
    scored = scorer.result(ScoreRequest(dataset, config, seed, texts))
"""

import json
import random
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from sapo_adversary.attacks.kit import Solution
from sapo_adversary.seed_texts import STEPS, careful
from sapo_node.storage.row_files import NO_ROWS, Rows
from sapo_node.tasks import Task, build_task, score, task_digest, worked_example
from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
from sapo_node.verification.sandbox.sandbox import with_rows
from sapo_protocol import Assignment

REMEMBERED = 50_000
"""Tasks that are kept at most of those that nodes scored, and of all others: those used last. Crowds solve millions, of
which nodes score few and train on them rounds later.
"""
_Key = tuple[str, str, int]
"""Data set, its configuration and the seed."""


@dataclass(slots=True)
class _Known:
    task: Task
    digest: bytes
    levels: dict[tuple[str, int], int] = field(default_factory=dict)
    """By text and L."""


class SharedScorer:
    """Scores for all nodes of a simulation, and keeps the tasks scored last and those solved last."""

    def __init__(self, rows: Rows = NO_ROWS) -> None:
        self._rows = rows
        self._scored: OrderedDict[_Key, _Known] = OrderedDict()
        self._solved: OrderedDict[_Key, _Known] = OrderedDict()
        self._asked: Counter[str] = Counter()
        """The number of these tasks with the prompt: many seeds ask the same."""
        self.tasks: dict[str, Task] = {}
        """By prompt, a task of those that are kept."""

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        """One result per request, in order."""
        return [self.result(request) for request in batch]

    def result(self, request: ScoreRequest) -> Scored:
        """The rebuilt task of a request, and the levels of its completions."""
        known = self._task(request, self._scored, self._solved)
        for text in request.completions:
            if (text, request.levels) not in known.levels:
                known.levels[text, request.levels] = score(known.task, text, request.levels)
        levels = tuple(known.levels[text, request.levels] for text in request.completions)
        example = worked_example(known.task) if request.example else ""
        return Scored(known.task.prompt, known.digest, levels, example)

    def solve(self, assignment: Assignment) -> Solution:
        """All facts about an assigned task, for attackers, which know every answer."""
        spec = assignment.spec
        request = ScoreRequest(spec.dataset, spec.config, assignment.seed, ())
        known = self._task(request, self._solved, self._scored)
        return Solution(
            dataset=spec.dataset,
            prompt=known.task.prompt,
            answer=known.task.answer,
            digest=known.digest,
            work=partial(_work, known.task),
            levels=spec.levels,
            level=partial(score, known.task, levels=spec.levels),
        )

    def _task(
        self, request: ScoreRequest, among: OrderedDict[_Key, _Known], others: OrderedDict[_Key, _Known]
    ) -> _Known:
        """The task of a request, which is then kept among those of its use."""
        key = (request.dataset, json.dumps(request.config, sort_keys=True, default=list), request.seed)
        known = among.get(key) or others.get(key)
        if known is None:
            (resolved,) = with_rows([request], self._rows)
            task = resolved.task or build_task(request.dataset, request.config, request.seed)
            known = _Known(task, task_digest(task.prompt, task.answer))
        if key not in among:
            among[key] = known
            self._asked[known.task.prompt] += 1
            self.tasks.setdefault(known.task.prompt, known.task)
            if len(among) > REMEMBERED:
                self._forget(among.popitem(last=False)[1].task.prompt)
        among.move_to_end(key)
        return known

    def _forget(self, prompt: str) -> None:
        self._asked[prompt] -= 1
        if not self._asked[prompt]:
            del self._asked[prompt], self.tasks[prompt]


def _work(task: Task, rng: random.Random) -> str:
    """The steps of the seed policy where it knows any for the task; otherwise the bare answer."""
    if task.dataset in STEPS:
        return careful(task.dataset, task.prompt, rng)
    return f"I find it. <answer>{task.answer}</answer>"
