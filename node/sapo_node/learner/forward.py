"""Runs the model on prompts and their completions. It reads each prompt once for all of its completions.

This works on token ids and tensors. It knows neither text nor rewards.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from sapo_node.learner.model import Policy


def read_prompts(policy: Policy, ids: Tensor, mask: Tensor) -> tuple[Tensor, DynamicCache]:
    """Return the logits after each prompt, (Q, V), and the cache. `ids` and `mask` are (Q, P), padded on the left."""
    cache = DynamicCache(config=policy.model.config)
    return run(policy, ids, mask, cache, keep=1)[:, -1], cache


def run(policy: Policy, ids: Tensor, mask: Tensor, cache: DynamicCache, *, keep: int) -> Tensor:
    """Return the logits at the last `keep` of the T tokens, (B, keep, V), in fp32. Append all T tokens to the cache.

    `ids` is (B, T). `mask` is (B, cached + T): it covers the tokens in the cache, too.
    """
    output = policy.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions_of(mask)[:, -ids.shape[1] :],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    )
    logits: Tensor = output.logits
    return logits.float()


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask, both (rows, longest), padded on the left."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def pad_right(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask, both (rows, longest), padded on the right."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([list(row) + [pad] * (longest - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Return each token's position in its own sequence. Padding on the left has position 0."""
    return (mask.cumsum(1) - 1).clamp(min=0)
