"""What this node's own policy can do by now, by task: the one measure of others' rollouts that nobody can forge."""

from collections.abc import Iterable

from sapo_node.groups.types import LocalGroup

FORGETTING = 0.9
"""What a new group or round leaves of the weight of the ones before it: about the last ten count."""


class RunningMean:
    """A mean that forgets, correct from its first value on."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, total: float, count: int = 1) -> None:
        """Take in `count` values that sum to `total`."""
        self._sum = FORGETTING * self._sum + total
        self._weight = FORGETTING * self._weight + count

    @property
    def value(self) -> float | None:
        """None before the first value."""
        return self._sum / self._weight if self._weight else None


class PassRates:
    """Running pass rates of the policy's own completions, before any selection."""

    def __init__(self) -> None:
        self._rates: dict[str, RunningMean] = {}

    def observe(self, local: Iterable[LocalGroup]) -> None:
        """Count a round's own groups."""
        for group in local:
            self._rates.setdefault(group.dataset, RunningMean()).add(sum(group.rewards), len(group.rewards))

    def pass_rate(self, dataset: str) -> float | None:
        """Share of right answers of late; None where this policy has not been asked yet."""
        rate = self._rates.get(dataset)
        return rate.value if rate else None
