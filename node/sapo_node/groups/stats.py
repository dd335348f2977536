"""Confidence intervals of shares: how far a measured share may be from the true one, above all where samples are few.

Pure functions. Every interval contains its point and stays within [0, 1].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, pvariance

LEVEL = 0.95
"""The confidence level where none is given."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its confidence interval."""

    point: float
    low: float
    high: float


def wilson_interval(successes: float, trials: float, level: float = LEVEL) -> Interval:
    """The score interval of a share (Wilson 1927), which holds its level with few trials and at 0 and 1 as well.

    `successes` and `trials` need not be whole: see `clustered_interval`.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    point = successes / trials
    scale = 1 + z**2 / trials
    centre = (point + z**2 / (2 * trials)) / scale
    half = z / scale * sqrt(point * (1 - point) / trials + z**2 / (4 * trials**2))
    # At 0 and 1 a bound equals the point, but for rounding.
    return Interval(point, max(0.0, min(point, centre - half)), min(1.0, max(point, centre + half)))


def clustered_interval(successes: Sequence[int], samples: int, level: float = LEVEL) -> Interval:
    """The interval of a share where each cluster has `samples` trials, `successes` of which succeeded.

    Trials of one cluster are alike, so the clusters are what counts: Wilson's interval for the number of independent
    trials that would have this variance (Korn and Graubard 1998), at least one a cluster and at most all.
    """
    shares = [count / samples for count in successes]
    point = fmean(shares)
    alike = pvariance(shares, point) / (point * (1 - point)) if 0 < point < 1 else 1.0
    trials = len(shares) / min(1.0, max(alike, 1 / samples))
    return wilson_interval(point * trials, trials, level)


def mean_of_intervals(parts: Sequence[Interval]) -> Interval:
    """The interval of the mean of independent shares, from theirs at the same level (Zou and Donner 2008)."""
    point = fmean(part.point for part in parts)
    below = sqrt(sum((part.point - part.low) ** 2 for part in parts)) / len(parts)
    above = sqrt(sum((part.high - part.point) ** 2 for part in parts)) / len(parts)
    return Interval(point, point - below, point + above)
