"""The GRPO loss, as pure functions over tensors.

The loss is a sum over tokens with a constant denominator. So the weight of a token does not depend on the other rows of
the batch (Liu et al. 2025, "Understanding R1-Zero-Like Training"). It is clipped as in DAPO (Yu et al. 2025), which
acts only if a batch is trained on in several steps. It has no KL term.

This policy did not sample the external completions, and the probabilities of the policy that did are unknown. So no
importance weight is correct for them. The external objective says which of them count: those with positive advantage
(`positive-only`), or all, as if this policy had sampled them (`on-policy`, as in SAPO).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CLIP_LOW = 0.2
CLIP_HIGH = 0.28
TRUNCATION = 2.0
CHUNK = 2**22
"""Logits that are in fp32 at a time, at most: 16 MiB."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch of completions, padded on the right."""

    logprobs: Tensor
    """(B, T) log-probability of each completion token under the trained policy."""
    old_logprobs: Tensor
    """(B, T) log-probability of each completion token under the policy at the start of the step; no gradient."""
    advantages: Tensor
    """(B,) advantage of each completion within its group."""
    weights: Tensor
    """(B, T) weight of each token in the loss; 0 for padding."""


def policy_loss(inputs: LossInputs, denominator: float) -> Tensor:
    """Return the clipped surrogate, summed over tokens and divided by a constant of the configuration.

    Micro-batches add up: the loss of a batch is the sum of its parts' losses.
    """
    ratio = torch.exp(inputs.logprobs - inputs.old_logprobs)
    advantages = inputs.advantages[:, None]
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    return -(gain * inputs.weights).sum() / denominator


def importance(logprobs: Tensor, sampled: Tensor) -> Tensor:
    """Return the importance weight of each token, truncated at TRUNCATION: (B, T), (B, T) to (B, T).

    `sampled` is the log-probability with which a token was sampled, NaN if that is unknown: then the weight is 1.
    It differs from `logprobs` if sampling computes in another way or in few bits, or if the step is replayed after
    others were taken back. Truncation bounds the variance, and unlike a clip of the ratio it leaves every token its
    gradient (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training").
    """
    weight = torch.exp(logprobs - sampled).clamp(max=TRUNCATION)
    return torch.where(sampled.isnan(), 1.0, weight)


def token_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target, in fp32 or better: (B, T, V) and (B, T) to (B, T)."""
    logprobs: Tensor = _TokenLogprobs.apply(logits.flatten(0, -2), targets.flatten())  # type: ignore[no-untyped-call]
    return logprobs.view(targets.shape)


class _TokenLogprobs(torch.autograd.Function):
    """The same for (N, V) and (N,). Computes in chunks, and keeps nothing of the size of the logits but the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        totals = torch.cat([exact.logsumexp(-1) for exact in _chunks(logits)])
        ctx.save_for_backward(logits, targets, totals)
        return logits.gather(-1, targets[:, None])[:, 0].to(totals.dtype) - totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, targets, totals = ctx.saved_tensors
        grad, start = torch.empty_like(logits), 0
        for exact in _chunks(logits):
            part = slice(start, start + len(exact))
            gradient = gradients[0][part, None]
            change = (exact - totals[part, None]).exp_().mul_(-gradient)
            grad[part] = change.scatter_add_(-1, targets[part, None], gradient)
            start = part.stop
        return grad, None


@torch.no_grad()
def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the distribution at each position in nats, without gradient: (B, T, V) to (B, T)."""
    entropies = []
    for exact in _chunks(logits.flatten(0, -2)):
        totals = exact.logsumexp(-1, keepdim=True)
        entropies.append(totals[:, 0] - ((exact - totals).exp_() * exact).sum(-1))
    return torch.cat(entropies).view(logits.shape[:-1])


def _chunks(logits: Tensor) -> Iterator[Tensor]:
    """Yield the logits, (N, V), in chunks of at most CHUNK, in fp32 or better."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    rows = max(1, CHUNK // logits.shape[-1])
    for start in range(0, len(logits), rows):
        yield logits[start : start + rows].to(dtype)
