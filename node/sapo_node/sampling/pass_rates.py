"""What this node's own policy can do by now, by task: the one measure of others' rollouts that nobody can forge."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sapo_node.groups.codec import MalformedError, from_json, to_object
from sapo_node.groups.ranges import Amount
from sapo_node.groups.record import LocalGroup

FORGETTING = 0.9
"""What a new group or round leaves of the weight of the ones before it: about the last ten count."""


@dataclass(slots=True)
class RunningMean:
    """A mean that forgets, correct from its first value on."""

    total: Amount = 0.0
    weight: Amount = 0.0

    def add(self, total: float, count: int = 1) -> None:
        """Take in `count` values that sum to `total`."""
        self.total = FORGETTING * self.total + total
        self.weight = FORGETTING * self.weight + count

    @property
    def value(self) -> float | None:
        """None before the first value, which has a weight of 1."""
        return self.total / self.weight if self.weight >= 1 else None


@dataclass(frozen=True, slots=True)
class _State:
    rates: Mapping[str, RunningMean]
    """By task."""

    def __post_init__(self) -> None:
        if any(rate.total > rate.weight for rate in self.rates.values()):
            raise MalformedError("a pass rate is above 1")


class PassRates:
    """Running pass rates of the policy's own completions, before any selection."""

    def __init__(self) -> None:
        self._rates: dict[str, RunningMean] = {}

    def observe(self, local: Iterable[LocalGroup]) -> None:
        """Count a round's own groups."""
        for group in local:
            self._rates.setdefault(group.dataset, RunningMean()).add(sum(group.rewards), len(group.rewards))

    def pass_rate(self, dataset: str) -> float | None:
        """The recent share of correct local completions; None for a task that the policy has not had yet."""
        rate = self._rates.get(dataset)
        return rate.value if rate else None

    def state_dict(self) -> dict[str, Any]:
        """The running means, as plain JSON."""
        return to_object(_State(self._rates))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the means in `state`. Raises MalformedError where it holds none."""
        self._rates = dict(from_json(_State, state).rates)
