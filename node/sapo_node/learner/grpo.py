"""The GRPO loss, as pure functions over tensors.

The loss is a sum over tokens with a constant denominator. So the weight of a token does not depend on the other rows of
the batch (Liu et al. 2025, "Understanding R1-Zero-Like Training"). It is clipped as in DAPO (Yu et al. 2025) and has no
KL term.

This policy did not sample the external completions, and the probabilities of the policy that did are unknown. So no
importance weight is correct for them. The external objective says which of them count: those with positive advantage
(`positive-only`), or all, as if this policy had sampled them (`on-policy`, as in SAPO).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.groups.messages import ExternalObjective

CLIP_LOW = 0.2
CLIP_HIGH = 0.28
TRUNCATION = 2.0


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

    `sampled` is the log-probability with which a token was sampled, NaN where that is unknown: there the weight is 1.
    It differs from `logprobs` if sampling computes in another way or in few bits, or if the step is replayed after
    others were taken back. Truncation bounds the variance, and unlike a clip of the ratio it leaves every token its
    gradient (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training").
    """
    weight = torch.exp(logprobs - sampled).clamp(max=TRUNCATION)
    return torch.where(sampled.isnan(), 1.0, weight)


def token_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target: (B, T, V) and (B, T) to (B, T)."""
    chosen = logits.gather(-1, targets[..., None])[..., 0]
    return chosen - logits.logsumexp(-1)


def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the distribution at each position in nats: (B, T, V) to (B, T)."""
    entropy: Tensor = torch.special.entr(logits.softmax(-1)).sum(-1)
    return entropy


def counts(advantage: float, *, external: bool, objective: ExternalObjective) -> bool:
    """Return whether a completion enters the loss."""
    if advantage == 0:
        return False
    return not (external and objective == "positive-only" and advantage < 0)
