"""The filters that need the policy's own probabilities of what others wrote.

They cost nothing: the probabilities are those that the loss needs anyway, before the policy learns from them.
"""

import math
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from sapo_node.groups.messages import FOLLOWS, RARE, FilterName
from sapo_node.learner.batch import MicroBatch, Row


def passing(
    names: AbstractSet[str], batch: MicroBatch, logprobs: Tensor
) -> tuple[Tensor, list[tuple[Row, FilterName]]]:
    """Apply the filters of these names to external completions whose tokens have these log-probabilities, (B, T).

    Returns 1 for each token that passes, (B, T), and each completion of which a token does not pass, with its filter.
    Incorrect completions pass: the policy learns nothing from them, and what makes them less probable is not for
    filters to say.
    """
    correct = torch.tensor([[row.advantage > 0] for row in batch.rows], device=logprobs.device)
    stopped = torch.zeros_like(batch.mask, dtype=torch.bool)
    rejected: list[tuple[Row, FilterName]] = []
    if "answer-likelihood" in names:
        guessed = ~follows(logprobs, batch.answer)[:, None] & correct
        rejected += [
            (row, "answer-likelihood") for row, is_guess in zip(batch.rows, guessed.any(1), strict=True) if is_guess
        ]
        stopped |= guessed
    if "min-token-prob" in names:
        surprising = surprises(logprobs, batch.mask - batch.answer) & correct & ~stopped
        rejected += [
            (row, "min-token-prob") for row, is_part in zip(batch.rows, surprising.any(1), strict=True) if is_part
        ]
        stopped |= surprising
    return (~stopped).to(logprobs.dtype), rejected


def surprises(logprobs: Tensor, before_answer: Tensor) -> Tensor:
    """Tell which tokens this policy would hardly come to write: (B, T), (B, T) to (B, T).

    The first that it would not write leads off its way, and what comes after it is nothing that it would meet on its
    own: none of that is taught. Nor could one tell where it is back on its way, since a wrong step in words that it
    knows from elsewhere surprises where it begins, and not where it ends. `before_answer` is 1 for the tokens before
    the answer, and for its tags.
    """
    work = before_answer.bool()
    rare = (logprobs < math.log(RARE)) & work
    return (rare.cumsum(1) > 0) & work


def follows(logprobs: Tensor, answer: Tensor) -> Tensor:
    """Tell in which completions the answer follows, for this policy, from the text before it: (B, T), (B, T) to (B,).

    If a correct answer does not follow from the text, the policy could learn only to guess from it.
    `answer` is 1 for the tokens of the answer and of what comes after it. The tags do not count: where a policy would
    answer is not what its answer follows from.
    """
    return torch.where(answer.bool(), logprobs, 0.0).sum(1) >= math.log(FOLLOWS)
