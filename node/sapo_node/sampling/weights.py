"""Pass rates and rewards of this policy by task, and the worth of a group by them. No peer can forge them.

`trust` draws by trust and age. `uniform` draws every group alike, as SAPO does; only the simulator can set it. Neither
asks what this policy can do already, and with them a strong node gained nothing from weak peers. `informative` asks: a
correct completion is drawn, and weighs, by how much better it is than what this policy does. It teaches most in a task
that this policy hardly ever solves.

`LocalWeight` is the loss weight of a local group. A peer that knows the answers chooses how many of its completions are
correct and how long they are, so the groups on offer alone cannot say how heavy a group usually is. A group without
correct completions does not count: a policy that writes next to nothing would find all groups too heavy, and never
learn from peers again.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median
from typing import Any, Literal

from sapo_node.groups.advantage import counts, external_advantages, local_advantages
from sapo_node.groups.codec import Amount, Count, MalformedError, from_json, to_object
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import ExternalObjective
from sapo_node.groups.record import LocalGroup, VerifiedGroup

FORGETTING = 0.9
"""Factor on the weight of earlier groups or rounds at each new one: about the last ten count."""


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
class Reward:
    """The reward of one completion of a task."""

    mean: float
    variance: float


@dataclass(slots=True)
class _Task:
    """Running means over the local completions to one task."""

    correct: RunningMean = field(default_factory=RunningMean)
    reward: RunningMean = field(default_factory=RunningMean)
    square: RunningMean = field(default_factory=RunningMean)
    """Of the square of the reward."""
    informative: RunningMean = field(default_factory=RunningMean)
    """Of groups, not of completions."""
    quiet_groups: Count = 0
    """Groups since the last informative one."""

    def __post_init__(self) -> None:
        if any(each.total > each.weight for each in (self.correct, self.reward, self.square, self.informative)):
            raise MalformedError("a pass rate, a reward or a share of groups is above 1")

    def add(self, levels: Levels) -> None:
        self.informative.add(levels.are_unequal)
        self.quiet_groups = 0 if levels.are_unequal else self.quiet_groups + 1
        count = len(levels.each)
        self.correct.add(levels.right, count)
        self.reward.add(sum(levels.rewards), count)
        self.square.add(sum(reward * reward for reward in levels.rewards), count)


@dataclass(frozen=True, slots=True)
class _Tasks:
    tasks: Mapping[str, _Task]
    """By name."""


@dataclass(frozen=True, slots=True)
class TaskSignal:
    """The signal that this policy gets from its own groups of one task."""

    task: str
    pass_rate: float
    """The recent share of correct completions."""
    informative: float
    """The recent share of groups whose completions earned different levels."""
    quiet_groups: int
    """Groups since the last informative one."""


class PassRates:
    """Running pass rates and rewards of the policy's own completions, before any selection."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def observe(self, local: Iterable[LocalGroup]) -> None:
        """Count the local groups of a round."""
        for group in local:
            self._tasks.setdefault(group.dataset, _Task()).add(group.levels)

    def pass_rate(self, dataset: str) -> float | None:
        """The recent share of correct local completions; None for a task that the policy has not had yet."""
        task = self._tasks.get(dataset)
        return task.correct.value if task else None

    def reward(self, dataset: str) -> Reward | None:
        """The recent reward of a local completion; None for a task that the policy has not had yet. With one level its
        mean is the pass rate.
        """
        task = self._tasks.get(dataset)
        if task is None or (mean := task.reward.value) is None or (square := task.square.value) is None:
            return None
        return Reward(mean, max(0.0, square - mean * mean))

    def signals(self) -> list[TaskSignal]:
        """The signal of each task that the policy has had, by name."""
        return [
            TaskSignal(name, task.correct.value or 0.0, task.informative.value or 0.0, task.quiet_groups)
            for name, task in sorted(self._tasks.items())
        ]

    def state_dict(self) -> dict[str, Any]:
        """The running means, as plain JSON."""
        return to_object(_Tasks(self._tasks))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the means in `state`. Raises MalformedError if it has another form."""
        self._tasks = dict(from_json(_Tasks, state).tasks)


Selection = Literal["trust", "informative", "uniform"]

SPREAD = 0.35
"""Least deviation by which an own advantage is divided. Without it a task that is hardly ever solved would dominate."""
LEAST_PREFERENCE = 0.05


def preference(group: VerifiedGroup, pass_rates: PassRates) -> float:
    """Return the worth of a correct completion of the group's task to this policy, as a share of the greatest worth."""
    rate = pass_rates.pass_rate(group.dataset)
    return 1.0 if rate is None else max(LEAST_PREFERENCE, SPREAD * _worth(rate))


def own_advantages(levels: Levels, rate: float | None) -> tuple[float, ...]:
    """Advantages of a peer's group against the receiver's own pass rate b on the task, (r - b) / max(sqrt(b (1 - b)),
    SPREAD). r is 1 for a correct completion and 0 for any other, as in `external_advantages`.

    The sender's group has no say in them: neither a rare success among staged failures nor a good day counts for more
    than it is worth here. Where the own rate is not known yet the group's own advantages stand in.
    """
    if rate is None or not levels.is_mixed:
        return external_advantages(levels)
    right, wrong = _worth(rate), -rate / _deviation(rate)
    return tuple(right if is_correct else wrong for is_correct in levels.correct)


def external_worth(group: VerifiedGroup, pass_rates: PassRates) -> float:
    """Return the worth of a peer's group to this policy: the sum of its positive own advantages. The loss counts no
    other external completions.
    """
    return sum(each for each in own_advantages(group.levels, pass_rates.pass_rate(group.dataset)) if each > 0)


def local_worth(group: LocalGroup, pass_rates: PassRates) -> float:
    """Return the worth of a local group in the same unit: the sum of its positive advantages against the usual reward
    of its task. Parts of an answer count, because this policy learns from them in its own completions.
    """
    usual = pass_rates.reward(group.dataset)
    if usual is None or not group.levels.are_unequal:
        return sum(each for each in local_advantages(group.levels) if each > 0)
    deviation = max(sqrt(usual.variance), SPREAD)
    return sum(max(0.0, reward - usual.mean) for reward in group.levels.rewards) / deviation


def loss_weight(
    weighed: Sequence[float], lengths: Sequence[int], objective: ExternalObjective = "positive-only"
) -> float:
    """Loss weight of an external group: sum over its completions of |advantage| x UTF-8 bytes, with one byte for each
    end; never 0. Only completions that the loss counts have a part in it: a peer whose incorrect completions are empty
    would else teach more than its group seems to weigh.
    """
    counted = (
        abs(advantage) * (1 + length)
        for advantage, length in zip(weighed, lengths, strict=True)
        if counts(advantage, external=True, objective=objective)
    )
    return max(1.0, sum(counted))


def _worth(rate: float) -> float:
    """The own advantage of a correct completion."""
    return (1 - rate) / _deviation(rate)


def _deviation(rate: float) -> float:
    return max(sqrt(rate * (1 - rate)), SPREAD)


KEPT = 32
"""The newest informative local groups that count."""


@dataclass(frozen=True, slots=True)
class _Weights:
    weights: tuple[Amount, ...]
    """The weights of the groups that count, oldest first."""


class LocalWeight:
    """The loss weights of the newest informative local groups."""

    def __init__(
        self, pass_rates: PassRates, *, by_pass_rate: bool, objective: ExternalObjective = "positive-only"
    ) -> None:
        """`by_pass_rate` says whether correct external completions count by this node's own pass rate."""
        self._objective: ExternalObjective = objective
        self._pass_rates = pass_rates
        self._by_pass_rate = by_pass_rate
        self._weights: deque[float] = deque(maxlen=KEPT)

    @property
    def value(self) -> float | None:
        """The median; None before the first informative local group."""
        return median(self._weights) if self._weights else None

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Weigh the groups of a round with correct and incorrect completions, as if a peer had sent them."""
        for group in local:
            if group.levels.is_mixed:
                lengths = [len(each.text.encode()) for each in group.completions]
                self._weights.append(loss_weight(self._advantages(group), lengths, self._objective))

    def state_dict(self) -> dict[str, Any]:
        """The weights that count."""
        return to_object(_Weights(tuple(self._weights)))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the weights in `state`. Raises MalformedError if it has another form."""
        self._weights = deque(from_json(_Weights, state).weights, maxlen=KEPT)

    def _advantages(self, group: LocalGroup) -> tuple[float, ...]:
        counted = external_advantages(group.levels)
        if not self._by_pass_rate:
            return counted
        own = own_advantages(group.levels, self._pass_rates.pass_rate(group.dataset))
        parts = zip(own, counted, group.levels.correct, strict=True)
        return tuple(mine if is_correct else each for mine, each, is_correct in parts)
