"""The GRPO loss, as pure functions over tensors.

Token-level with a constant denominator, so that the weight of a token does not depend on what else is in the batch
(Liu et al. 2025, "Understanding R1-Zero-Like Training"); clipped as in DAPO (Yu et al. 2025); no KL term.
External completions were not drawn from this policy, and their sender's probabilities are unknown: no importance
weight can be right for them, so a correction says which of them count.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.groups.messages import Correction

CLIP_LOW = 0.2
CLIP_HIGH = 0.28
RARE_TOKEN = 1e-3
"""Under `tapered`, a token of an external completion less probable than this is not pushed up."""
PLAUSIBLE_QUANTILE = 0.1
"""Under `tapered`, completions at least as likely as this quantile of the local ones count in full."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch of completions, padded on the right."""

    logprobs: Tensor
    """(B, T) log-probability of each completion token under the policy that is trained."""
    old_logprobs: Tensor
    """(B, T) the same under the policy at the start of the step; no gradient."""
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


def token_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target: (B, T, V) and (B, T) to (B, T)."""
    chosen = logits.gather(-1, targets[..., None])[..., 0]
    return chosen - logits.logsumexp(-1)


def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each place's distribution in nats: (B, T, V) to (B, T)."""
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def mean_logprobs(logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return each completion's mean token log-probability: (B, T) and (B, T) to (B,)."""
    return (logprobs * mask).sum(1) / mask.sum(1).clamp(min=1)


def plausible_floor(local_means: Tensor) -> float:
    """Return the mean log-probability above which a completion counts as one's own; +inf without local ones.

    Infinity gives every external completion with negative advantage weight 0: without a measure nothing is pushed down.
    """
    if local_means.numel() == 0:
        return float("inf")
    return float(torch.quantile(local_means, PLAUSIBLE_QUANTILE))


def counts(advantage: float, *, external: bool, correction: Correction) -> bool:
    """Tell whether a completion enters the loss at all."""
    if advantage == 0:
        return False
    return not (external and correction == "positive" and advantage < 0)


def taper(logprobs: Tensor, mask: Tensor, advantages: Tensor, floor: float) -> Tensor:
    """Return the token weights of external completions under `tapered`, (B, T).

    With negative advantage a completion weighs min(1, exp(mean log p - floor)): text this policy would not write is
    not pushed down, which has no bound. With positive advantage its rare tokens are left out.
    """
    logprobs = logprobs.detach()
    plausible = torch.exp(mean_logprobs(logprobs, mask) - floor).clamp(max=1)[:, None]
    common = (logprobs >= torch.log(torch.tensor(RARE_TOKEN))).to(mask.dtype)
    return mask * torch.where(advantages[:, None] < 0, plausible, common)
