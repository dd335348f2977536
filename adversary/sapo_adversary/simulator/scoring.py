"""One scorer for a whole simulated swarm: the node's own tasks and rules, in this process, each answer scored once.

Every node of a swarm rebuilds the same tasks and scores the same texts, and both are pure functions of the request.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sapo_adversary.attacks.kit import Solution
from sapo_node.jail.messages import Scored, ScoreRequest
from sapo_node.tasks import Task, build_task, score, task_digest
from sapo_protocol import Assignment


@dataclass(slots=True)
class _Known:
    task: Task
    digest: bytes
    rewards: dict[str, bool] = field(default_factory=dict)


class SharedScorer:
    """Scores for all nodes, and remembers."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], _Known] = {}
        self.tasks: dict[str, Task] = {}
        """The task of every question worked out so far."""

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        """One result per request, in order."""
        return [self.result(request) for request in batch]

    def result(self, request: ScoreRequest) -> Scored:
        """The task of a request rebuilt and its completions scored."""
        known = self._task(request)
        for text in request.completions:
            if text not in known.rewards:
                known.rewards[text] = score(request.dataset, known.task, text)
        rewards = tuple(known.rewards[text] for text in request.completions)
        return Scored(known.task.question, known.digest, rewards)

    def solve(self, assignment: Assignment) -> Solution:
        """Everything about an assigned task, for attackers who know it all."""
        spec = assignment.spec
        known = self._task(ScoreRequest(spec.dataset, spec.config, assignment.seed, ()))
        return Solution(known.task.question, known.task.answer, known.digest)

    def is_right(self, question: str, text: str) -> bool:
        """Whether a text answers a question that was worked out before."""
        return score(self.tasks[question].dataset, self.tasks[question], text)

    def _task(self, request: ScoreRequest) -> _Known:
        key = (request.dataset, json.dumps(request.config, sort_keys=True, default=list), request.seed)
        if key not in self._known:
            task = build_task(request.dataset, request.config, request.seed)
            self._known[key] = _Known(task, task_digest(task.question, task.answer))
            self.tasks[task.question] = task
        return self._known[key]
