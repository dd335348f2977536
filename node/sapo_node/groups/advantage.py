"""GRPO's advantage of each completion within its group, for the processes that do not import torch.

Local groups have advantages by level, and groups of peers by the bit "correct or not" (`external_advantages` says why).
Both divide by the deviation of the group, as GRPO and TRL do, but by no less than the deviation of a group with one
correct completion. With one level no group with an advantage has a smaller deviation, so this is GRPO. With more levels
GRPO would give the only completion that earns 1/4 the advantage of a correct one, and a policy would settle for parts.
"""

from collections.abc import Sequence
from math import sqrt

from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import ExternalObjective

EPSILON = 1e-8


def advantages(levels: Sequence[float], top: float = 1) -> tuple[float, ...]:
    """Return one advantage for each level, in order: (r - mean) / (max(std, 1 / sqrt(G)) + EPSILON), where r = level /
    top, std is the unbiased deviation, and G the number of levels.

    If all levels are equal, every advantage is exactly 0 (a zero-advantage group). Levels are integers, so a completion
    at the mean of its group also has exactly 0.
    """
    count, total = len(levels), sum(levels)
    if len(set(levels)) < 2:
        return (0.0,) * count
    variance = (count * sum(level * level for level in levels) - total * total) / (count * (count - 1))
    deviation = sqrt(max(variance, top * top / count))
    return tuple((count * level - total) / count / (deviation + EPSILON * top) for level in levels)


def local_advantages(levels: Levels) -> tuple[float, ...]:
    """Return the advantages of a group of this node, by level."""
    return advantages(levels.each, levels.top)


def external_advantages(levels: Levels) -> tuple[float, ...]:
    """Return the advantages of a group of a peer: a completion below level L counts as incorrect, whatever its level.

    Many texts earn the same part of an answer, so a peer may choose what they teach. By level the policy would learn
    them where they are above the mean of their group. The incorrect completions would also move mean and deviation: the
    peer would choose with them how much its correct completions weigh.
    """
    return advantages(levels.correct)


def counts(advantage: float, *, external: bool, objective: ExternalObjective) -> bool:
    """Return whether a completion enters the loss."""
    if advantage == 0:
        return False
    return not (external and objective == "positive-only" and advantage < 0)
