"""Sampling: several completions of each question, at a temperature, with nothing cut from the distribution.

Each prompt is read once and its cache repeated over its completions; finished rows leave the batch. Works on token
ids; only the very end turns them into text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from sapo_node.learner.messages import Finish, GenerateRequest, RequestError, Sampled
from sapo_node.learner.model import Policy

ROWS = 128
"""Completions that are sampled together, at most; bounds memory."""


@dataclass(slots=True)
class _Row:
    """One completion while it grows."""

    tokens: list[int]
    finish: Finish


@torch.no_grad()
def generate(
    policy: Policy, request: GenerateRequest, max_completion_bytes: int, *, opening: str = ""
) -> list[tuple[Sampled, ...]]:
    """Sample every question's completions. Raises RequestError where a prompt does not fit into the model.

    With an `opening` all completions are what follows it; their texts do not repeat it.
    """
    forced = policy.encode_foreign(opening) or []
    prompts = [policy.prompt(question) + forced for question in request.questions]
    longest = max((len(prompt) for prompt in prompts), default=0)
    if longest + request.max_tokens > policy.context:
        raise RequestError(
            f"a prompt of {longest} tokens and {request.max_tokens} new ones exceed the model's {policy.context}"
        )
    generator = torch.Generator(device=policy.device).manual_seed(request.seed)
    at_once = max(1, ROWS // request.completions)
    groups: list[tuple[Sampled, ...]] = []
    for start in range(0, len(prompts), at_once):
        rows = _sample(policy, prompts[start : start + at_once], request, generator)
        done = [_finish(policy, row, max_completion_bytes) for row in rows]
        step = request.completions
        groups += [tuple(done[i : i + step]) for i in range(0, len(done), step)]
    return groups


def _sample(
    policy: Policy, prompts: Sequence[Sequence[int]], request: GenerateRequest, generator: torch.Generator
) -> list[_Row]:
    """Return the rows of a batch of prompts, those of one prompt side by side."""
    ids, mask = pad_left(prompts, policy.pad, policy.device)
    cache = DynamicCache(config=policy.model.config)
    logits = _forward(policy, ids, mask, positions_of(mask), cache)
    cache.batch_repeat_interleave(request.completions)
    logits = logits.repeat_interleave(request.completions, dim=0)  # (rows, vocabulary)
    mask = mask.repeat_interleave(request.completions, dim=0)
    rows = [_Row([], "length") for _ in range(len(prompts) * request.completions)]
    alive = list(range(len(rows)))
    forbidden = torch.tensor(sorted(policy.specials.difference(policy.ends)), dtype=torch.long, device=policy.device)
    for _ in range(request.max_tokens):
        chosen = _draw(logits.index_fill(1, forbidden, -torch.inf), request.temperature, generator)
        keep = _append(rows, alive, chosen.tolist(), policy.ends)
        if not keep:
            break
        alive = [alive[place] for place in keep]
        kept = torch.tensor(keep, device=policy.device)
        if len(keep) < len(mask):
            cache.batch_select_indices(kept)
        mask = torch.cat([mask[kept], mask.new_ones(len(keep), 1)], dim=1)
        positions = mask.sum(1, keepdim=True) - 1
        logits = _forward(policy, chosen[kept][:, None], mask, positions, cache)
    return rows


def _append(rows: list[_Row], alive: list[int], chosen: list[int], ends: tuple[int, ...]) -> list[int]:
    """Add each alive row's token; returns the places within `alive` that go on."""
    keep = []
    for place, (row, token) in enumerate(zip(alive, chosen, strict=True)):
        if token in ends:
            rows[row].finish = "stop"
        else:
            rows[row].tokens.append(token)
            keep.append(place)
    return keep


def _forward(policy: Policy, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache) -> Tensor:
    """Return the logits after the last token, (rows, vocabulary); the cache grows."""
    output = policy.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = output.logits[:, -1]
    return logits.float()


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Return one token id per row. Raises RequestError where the model's output is not finite."""
    chances = torch.softmax(logits / temperature, dim=-1)
    if not torch.isfinite(chances).all():
        raise RequestError("the model's output is not finite; go back to an older checkpoint")
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def _finish(policy: Policy, row: _Row, max_bytes: int) -> Sampled:
    """Turn a row into a completion; what exceeds the byte limit is cut and counts as truncated."""
    tokens, finish = row.tokens, row.finish
    text = policy.decode(tokens)
    while len(text.encode()) > max_bytes:
        excess = len(text.encode()) - max_bytes
        tokens = tokens[: -max(1, excess // 32)]
        text, finish = policy.decode(tokens), "length"
    return Sampled(text, finish, tuple(tokens))


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask, both (rows, longest), with the padding in front."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Return each token's place in its own sequence, padding counted as place 0."""
    return (mask.cumsum(1) - 1).clamp(min=0)
