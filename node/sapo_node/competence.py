"""What this node's own policy can do by now, by task: the one measure of others' rollouts that nobody can forge."""

from collections.abc import Iterable

from sapo_node.contribution import LocalGroup

_FORGETTING = 0.9
"""What a new group leaves of the weight of the ones before it: about the last ten groups count."""


class Competence:
    """Running pass rates of the policy's own completions, before any selection."""

    def __init__(self) -> None:
        self._right: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def observe(self, local: Iterable[LocalGroup]) -> None:
        """Count a round's own groups."""
        for group in local:
            name = group.dataset
            self._right[name] = _FORGETTING * self._right.get(name, 0.0) + sum(group.rewards)
            self._asked[name] = _FORGETTING * self._asked.get(name, 0.0) + len(group.rewards)

    def pass_rate(self, dataset: str) -> float | None:
        """Share of right answers of late; None where this policy has not been asked yet."""
        asked = self._asked.get(dataset)
        return self._right[dataset] / asked if asked else None
