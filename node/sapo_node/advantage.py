"""GRPO's advantage of each completion within its group, for the processes that do not import torch."""

from collections.abc import Sequence
from statistics import stdev

EPSILON = 1e-8


def advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """(r - mean) / (std + EPSILON) with the unbiased deviation; all 0 where the group is flat.

    The test for flatness is exact: rewards are bits, and a group without spread must teach nothing at all.
    """
    if len(set(rewards)) < 2:
        return (0.0,) * len(rewards)
    mean = sum(rewards) / len(rewards)
    deviation = stdev(rewards)
    return tuple((reward - mean) / (deviation + EPSILON) for reward in rewards)
