"""Baseline: what a right answer counts is for the receiver to say, by its own pass rate, not for the sender's group.

Who knows the answers decides how many of his are wrong: junk in half of a group makes the most of the other half.
"""

from collections.abc import Sequence

from sapo_node.sampling.weights import own_advantages


def against_own(rewards: Sequence[bool], advantages: Sequence[float], rate: float | None) -> tuple[float, ...]:
    """The advantages, those of right answers against the own pass rate on the task, where it is known."""
    own = own_advantages(rewards, rate)
    return tuple(mine if theirs > 0 else theirs for mine, theirs in zip(own, advantages, strict=True))
