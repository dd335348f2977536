"""One scorer for a whole simulated swarm: the node's own tasks and rules, in this process, each answer scored once.

Every node of a swarm rebuilds the same tasks and scores the same texts, and both are pure functions of the request.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sapo_node.jail.messages import Scored, ScoreRequest
from sapo_node.tasks import Task, build_task, score, task_digest


@dataclass(slots=True)
class _Known:
    task: Task
    digest: bytes
    rewards: dict[str, bool] = field(default_factory=dict)


class SharedScorer:
    """Scores for all nodes, and remembers."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], _Known] = {}
        self.datasets: dict[str, str] = {}
        """The dataset of every question worked out so far."""

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

    def _task(self, request: ScoreRequest) -> _Known:
        key = (request.dataset, json.dumps(request.config, sort_keys=True, default=list), request.seed)
        if key not in self._known:
            task = build_task(request.dataset, request.config, request.seed)
            self._known[key] = _Known(task, task_digest(task.question, task.answer))
            self.datasets[task.question] = task.dataset
        return self._known[key]
