"""Confidence intervals of proportions: how far the true proportion may be from the measured one.

Pure functions. Every interval contains its point and stays within [0, 1].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, pvariance

from sapo_node.groups.codec import Share

LEVEL = 0.95
"""The confidence level where none is given."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its confidence interval."""

    point: Share
    low: Share
    high: Share


def wilson_interval(successes: float, trials: float, level: float = LEVEL) -> Interval:
    """The score interval of a proportion (Wilson 1927). It holds its level with few trials, and at 0 and 1.

    `successes` and `trials` need not be whole: see `clustered_interval`.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    point = successes / trials
    scale = 1 + z**2 / trials
    centre = (point + z**2 / (2 * trials)) / scale
    half = z / scale * sqrt(point * (1 - point) / trials + z**2 / (4 * trials**2))
    # At 0 and 1 one bound equals the point, except for rounding errors.
    return Interval(point, max(0.0, min(point, centre - half)), min(1.0, max(point, centre + half)))


def clustered_interval(successes: Sequence[int], samples: int, level: float = LEVEL) -> Interval:
    """The interval of a proportion if each cluster has `samples` trials, of which its count in `successes` succeeded.

    Trials of one cluster are correlated. So this is Wilson's interval for the number of independent trials that would
    have the same variance (Korn and Graubard 1998): at least one per cluster, at most all trials.
    """
    shares = [count / samples for count in successes]
    point = fmean(shares)
    alike = pvariance(shares, point) / (point * (1 - point)) if 0 < point < 1 else 1.0
    trials = len(shares) / min(1.0, max(alike, 1 / samples))
    return wilson_interval(point * trials, trials, level)


def mean_of_intervals(parts: Sequence[Interval]) -> Interval:
    """The interval of the mean of independent proportions, from their intervals at one level (Zou and Donner 2008)."""
    point = fmean(part.point for part in parts)
    below = sqrt(sum((part.point - part.low) ** 2 for part in parts)) / len(parts)
    above = sqrt(sum((part.high - part.point) ** 2 for part in parts)) / len(parts)
    return Interval(point, point - below, point + above)
