"""The filters that need this policy's probabilities of external tokens: `answer-likelihood` and `min-token-prob`.

They need no forward pass of their own: the loss needs the same probabilities.
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

    Returns (B, T) with 1 for each token that passes, and each completion with a masked token together with its filter.
    Incorrect completions always pass: the policy learns to repeat only correct ones.
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
        surprising = surprises(logprobs, batch.work) & correct & ~stopped
        rejected += [
            (row, "min-token-prob") for row, is_part in zip(batch.rows, surprising.any(1), strict=True) if is_part
        ]
        stopped |= surprising
    return (~stopped).to(logprobs.dtype), rejected


def surprises(logprobs: Tensor, before_answer: Tensor) -> Tensor:
    """Return which tokens to mask: (B, T), (B, T) to (B, T).

    These are the first token with a probability below RARE and all later ones. After that token the text is one that
    this policy would hardly reach by itself. It may return to probable tokens, but they still belong to an improbable
    text: a false step in familiar words has a rare token only where it begins.
    `before_answer` is 1 for the tokens before the answer and for its tags. Only these tokens can be masked: not the end
    that the node itself puts behind the text.
    """
    work = before_answer.bool()
    rare = (logprobs < math.log(RARE)) & work
    return (rare.cumsum(1) > 0) & work


def follows(logprobs: Tensor, answer: Tensor) -> Tensor:
    """Return in which completions the answer follows from the text before it: (B, T), (B, T) to (B,).

    It follows if this policy gives the whole answer a probability of at least FOLLOWS after that text. From a correct
    answer that does not follow, the policy could only learn to guess.
    `answer` is 1 for the tokens of the answer and for the tokens after it. It is 0 for the tags: the filter does not
    ask whether the policy would answer at this position.
    """
    return torch.where(answer.bool(), logprobs, 0.0).sum(1) >= math.log(FOLLOWS)
