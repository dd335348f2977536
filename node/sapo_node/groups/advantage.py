"""GRPO's advantage of each completion within its group, for the processes that do not import torch."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import stdev

from sapo_node.groups.messages import ExternalObjective

EPSILON = 1e-8


def advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """Return one advantage for each reward, in order: (r - mean) / (std + EPSILON), with the unbiased deviation.

    If all rewards are equal, every advantage is exactly 0 (a zero-advantage group). Rewards are 0 or 1, so the
    comparison is exact.
    """
    return _advantages(tuple(rewards))


def counts(advantage: float, *, external: bool, objective: ExternalObjective) -> bool:
    """Return whether a completion enters the loss."""
    if advantage == 0:
        return False
    return not (external and objective == "positive-only" and advantage < 0)


@lru_cache(maxsize=4096)  # rewards are bits, so the same few hundred patterns recur
def _advantages(rewards: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(rewards)) < 2:
        return (0.0,) * len(rewards)
    mean = sum(rewards) / len(rewards)
    deviation = stdev(rewards)
    return tuple((reward - mean) / (deviation + EPSILON) for reward in rewards)
