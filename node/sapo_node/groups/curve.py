"""The learning curve of a node: the mean reward of its own, unfiltered completions over all its rounds.

A curve is a list of points in the order of the rounds. At first each point is one round. When there are MAX_POINTS,
`added` joins neighbours in pairs. So a curve has at most MAX_POINTS points, they cover all rounds, and every point but
the last stands for the same number of rounds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from sapo_node.groups.ranges import Amount, Count, Share

MAX_POINTS = 240
"""Even, so that pairs leave no point over."""
WINDOW = 10
"""Rounds in a mean that is compared with another mean. The mean of one round is mostly chance."""


@dataclass(frozen=True, slots=True)
class Point:
    """Some consecutive rounds: their means, the extremes of the reward, and sums of what filters masked."""

    first: Count
    """Step of the first of these rounds."""
    last: Count
    rounds: Count
    reward: Share
    seconds: Mapping[str, Amount]
    """By phase."""
    low: Share
    """The lowest mean reward of one of these rounds."""
    high: Share
    filtered: Mapping[str, Count] = field(default_factory=dict)
    """Correct external completions that filters masked in these rounds, by filter."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean rewards, from the first round to the last."""

    means: list[float]
    rounds: int
    """Rounds that each of `means` covers. The last may cover fewer."""
    first: float
    """Mean reward of the first points that cover WINDOW rounds, or of all points if they cover fewer."""
    best: float
    """The highest mean reward of all windows of WINDOW rounds."""
    now: float
    """Mean reward of the last window."""


def added(points: Sequence[Point], new: Point) -> list[Point]:
    """The curve with one more round."""
    if points and points[-1].rounds < points[0].rounds:
        return [*points[:-1], _joined(points[-1], new)]
    if len(points) < MAX_POINTS:
        return [*points, new]
    return [*(_joined(*pair) for pair in zip(points[::2], points[1::2], strict=True)), new]


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MAX_POINTS points over the same rounds: neighbours are joined, and none is left out."""
    size = -(-len(points) // MAX_POINTS) or 1
    return [reduce(_joined, points[start : start + size]) for start in range(0, len(points), size)]


def _joined(a: Point, b: Point) -> Point:
    rounds = a.rounds + b.rounds

    def mean(of_a: float, of_b: float) -> float:
        return (of_a * a.rounds + of_b * b.rounds) / rounds

    phases = [*a.seconds, *(phase for phase in b.seconds if phase not in a.seconds)]
    seconds = {phase: mean(a.seconds.get(phase, 0.0), b.seconds.get(phase, 0.0)) for phase in phases}
    filtered = dict(Counter(a.filtered) + Counter(b.filtered))
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Point(a.first, b.last, rounds, mean(a.reward, b.reward), seconds, low, high, filtered)


def learning_curve(points: Sequence[Point], columns: int) -> Curve | None:
    """The curve in at most `columns` means. None if there is no round."""
    if not points:
        return None
    size = -(-len(points) // columns)
    ends = [_window(points[::-1]), _window(points)]
    windows = [_window(points[start:]) for start in range(len(points)) if _rounds(points[start:]) >= WINDOW]
    return Curve(
        [round(_mean(points[start : start + size]), 4) for start in range(0, len(points), size)],
        size * points[0].rounds,
        first=round(ends[1], 4),
        best=round(max(*ends, *windows), 4),
        now=round(ends[0], 4),
    )


def _window(points: Sequence[Point]) -> float:
    """The mean reward of the first points that cover WINDOW rounds."""
    taken = next((count for count in range(1, len(points)) if _rounds(points[:count]) >= WINDOW), len(points))
    return _mean(points[:taken])


def _rounds(points: Sequence[Point]) -> int:
    return sum(point.rounds for point in points)


def _mean(points: Sequence[Point]) -> float:
    return sum(point.reward * point.rounds for point in points) / _rounds(points)
