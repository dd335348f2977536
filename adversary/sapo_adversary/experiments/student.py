"""Confidence intervals of means by Student's t, over units that are independent of each other: seeds, nodes, swarms."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from scipy.special import stdtrit

from sapo_node.groups.stats import LEVEL, Interval


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The interval of the mean of independent values. Raises StatisticsError for fewer than two."""
    mean = fmean(values)
    error = stdev(values) / sqrt(len(values))
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def paired_interval(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """The interval of the mean of `second` - `first`, measured on the same units in the same order.

    Raises StatisticsError for fewer than two pairs, ValueError where one has no partner.
    """
    return mean_interval([after - before for before, after in zip(first, second, strict=True)], level)
