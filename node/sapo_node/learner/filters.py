"""The filters that need this policy's tokens or its probabilities of them: `length`, `answer-likelihood` and
`min-token-prob`.

They need no forward pass of their own: the loss needs the same probabilities.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from sapo_node.groups.messages import FOLLOWS, Bounds, FilterName
from sapo_node.learner.batch import MicroBatch, Row


def is_too_long(row: Row) -> bool:
    """Return whether a correct completion has more tokens than its bounds allow, without the end that is taught."""
    most = row.bounds.tokens
    return most is not None and row.advantage > 0 and len(row.completion) - row.has_end > most


def passing(
    names: AbstractSet[str], batch: MicroBatch, logprobs: Tensor
) -> tuple[Tensor, list[tuple[Row, FilterName]]]:
    """Apply the filters of these names to external completions whose tokens have these log-probabilities, (B, T).

    Returns (B, 1) with 1 for each completion that passes, and each other one together with the first filter that
    rejects it. Incorrect completions always pass: the policy learns to repeat only correct ones.
    """
    rejecting: list[tuple[FilterName, Tensor]] = []
    if "answer-likelihood" in names:
        rejecting.append(("answer-likelihood", ~follows(logprobs, batch.answer)))
    if "min-token-prob" in names:
        rejecting.append(("min-token-prob", surprises(logprobs, batch.work, [row.bounds for row in batch.rows])))
    passes = torch.ones(len(batch.rows), dtype=torch.bool, device=logprobs.device)
    correct = torch.tensor([row.advantage > 0 for row in batch.rows], device=logprobs.device)
    rejected: list[tuple[Row, FilterName]] = []
    for name, rejects in rejecting:
        found = rejects & correct & passes
        rejected += [(row, name) for row, is_found in zip(batch.rows, found.tolist(), strict=True) if is_found]
        passes &= ~found
    return passes[:, None].to(logprobs.dtype), rejected


def surprises(logprobs: Tensor, before_answer: Tensor, bounds: Sequence[Bounds]) -> Tensor:
    """Return which completions this policy would hardly write, each by its own bounds: (B, T), (B, T) to (B,).

    In such a completion a token before the answer is too improbable, or all of them together are. A false step in
    familiar words has an improbable token only where it begins. A beginning that leads this policy to incorrect answers
    has one only behind it, where the text turns to the correct one. So the whole completion teaches nothing. A text of
    many tokens that are hardly probable enough is one that this policy would never write.
    `before_answer` is 1 for the tokens before the answer and for its tags. The filter does not ask about others: the
    node itself puts the end behind a text.
    """
    work = torch.where(before_answer.bool(), logprobs, 0.0)
    least = torch.tensor([[each.token, each.text] for each in bounds], dtype=logprobs.dtype, device=logprobs.device)
    return (work < least[:, :1]).any(1) | (work.sum(1) < least[:, 1])


def follows(logprobs: Tensor, answer: Tensor) -> Tensor:
    """Return in which completions the answer follows from the text before it: (B, T), (B, T) to (B,).

    It follows if this policy gives the whole answer a probability of at least FOLLOWS after that text. From a correct
    answer that does not follow, the policy could only learn to guess.
    `answer` is 1 for the tokens of the answer and for the tokens after it. It is 0 for the tags: the filter does not
    ask whether the policy would answer at this position.
    """
    return torch.where(answer.bool(), logprobs, 0.0).sum(1) >= math.log(FOLLOWS)
