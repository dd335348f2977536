"""The gates that need the policy's own probabilities of what others wrote.

They cost nothing: the probabilities are those that the loss needs anyway, before the policy learns from them.
"""

import math

import torch
from torch import Tensor

RARE = 1e-4
"""A token less probable than this is none that this policy would write."""
FOLLOWS = 0.05
"""Least probability of the answer, given the text before it."""


def surprises(logprobs: Tensor, before_answer: Tensor) -> Tensor:
    """Tell which tokens this policy would hardly write, and what stands between two of them: (B, T), (B, T) to (B, T).

    It is not taught to begin what it would not begin. Where it would not go on either, it was led off its way and back,
    as by a step that is wrong, and learns nothing from the detour. What comes after may still teach. `before_answer` is
    1 for the tokens before the answer, and for its tags.
    """
    rare = (logprobs < math.log(RARE)) & before_answer.bool()
    return _begun(rare) & _begun(rare.flip(1)).flip(1)


def _begun(marks: Tensor) -> Tensor:
    """Of each row, everything from its first mark on."""
    return marks.cumsum(1) > 0


def follows(logprobs: Tensor, answer: Tensor) -> Tensor:
    """Tell in which completions the answer follows, for this policy, from the text before it: (B, T), (B, T) to (B,).

    A right answer that does not follow is a guess, or was worked out elsewhere; what can be learnt from it is to guess.
    `answer` is 1 for the tokens of the answer and of what comes after it. The tags do not count: where a policy would
    answer is not what its answer follows from.
    """
    return torch.where(answer.bool(), logprobs, 0.0).sum(1) >= math.log(FOLLOWS)
