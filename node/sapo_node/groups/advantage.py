"""GRPO's advantage of each completion within its group, for the processes that do not import torch."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import stdev

EPSILON = 1e-8


def advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """One for each reward, in order: (r - mean) / (std + EPSILON) with the unbiased deviation; all 0 in a
    zero-advantage group.

    The test is exact, since rewards are bits: a group whose rewards are all equal must teach nothing.
    """
    return _advantages(tuple(rewards))


@lru_cache(maxsize=4096)  # a receiver asks again and again for the same few hundred
def _advantages(rewards: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(rewards)) < 2:
        return (0.0,) * len(rewards)
    mean = sum(rewards) / len(rewards)
    deviation = stdev(rewards)
    return tuple((reward - mean) / (deviation + EPSILON) for reward in rewards)
