"""The learning curve of a node: the mean reward of its own, unfiltered completions over its rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

WINDOW = 10
"""Rounds over which a mean is worth comparing with another: one round alone is mostly luck."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean rewards, from the first round kept to the last."""

    means: list[float]
    rounds: int
    """Rounds that each of `means` is over; the last may be over fewer."""
    first: float
    """Over the first WINDOW rounds, or as many as there are."""
    best: float
    """The best of all windows of so many rounds."""
    now: float
    """Over the last window."""


def learning_curve(rewards: Sequence[float], points: int) -> Curve | None:
    """The curve of one reward a round, in at most so many points; None without a round."""
    if not rewards:
        return None
    size = -(-len(rewards) // points)
    window = min(WINDOW, len(rewards))
    windows = [fmean(rewards[start : start + window]) for start in range(len(rewards) - window + 1)]
    return Curve(
        [round(fmean(rewards[start : start + size]), 4) for start in range(0, len(rewards), size)],
        size,
        first=round(windows[0], 4),
        best=round(max(windows), 4),
        now=round(windows[-1], 4),
    )
