"""Samples several completions of each prompt at a temperature, without top-k or top-p.

The model reads each prompt once; the completions share its cache. Finished rows leave the batch, several at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.groups.messages import Finish, GenerateRequest, RequestError, Sampled
from sapo_node.learner.forward import pad_left, read_prompts, run
from sapo_node.learner.model import Policy

ROWS = 128
"""Completions in one batch, at most. It bounds memory."""
CROWD = 0.75
"""Finished rows leave the batch when at most this share of its rows is unfinished: copying the cache costs time."""


@dataclass(slots=True)
class _Row:
    """One completion that is being sampled."""

    tokens: list[int]
    stopped: bool


@torch.no_grad()
def generate(
    policy: Policy, request: GenerateRequest, max_completion_bytes: int, *, opening: str = ""
) -> list[tuple[Sampled, ...]]:
    """Sample the completions of every prompt. Raises RequestError if a prompt does not fit into the model.

    With an `opening`, the model continues prompt and opening. The completions do not contain the opening.
    """
    forced = policy.encode_foreign(opening) or []
    prompts = [policy.prompt_tokens(prompt) + forced for prompt in request.prompts]
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
    """Return the rows of a batch of prompts. Rows of one prompt are neighbours."""
    ids, mask = pad_left(prompts, policy.pad, policy.device)
    logits, cache = read_prompts(policy, ids, mask)
    cache.batch_repeat_interleave(request.completions)
    logits = logits.repeat_interleave(request.completions, dim=0)  # (rows, vocabulary)
    mask = mask.repeat_interleave(request.completions, dim=0)
    rows = [_Row([], stopped=False) for _ in range(len(mask))]
    batch = list(rows)
    # A tokenizer may have special tokens that its model lacks.
    unwanted = sorted(token for token in policy.specials.difference(policy.ends) if token < policy.vocabulary)
    forbidden = torch.tensor(unwanted, dtype=torch.long, device=policy.device)
    for _ in range(request.max_tokens):
        chosen = _draw(logits.index_fill(1, forbidden, -torch.inf), request.temperature, generator)
        keep = _append(batch, chosen.tolist(), policy.ends)
        if not keep:
            break
        if len(keep) <= CROWD * len(batch):
            kept = torch.tensor(keep, device=policy.device)
            cache.batch_select_indices(kept)
            batch, mask, chosen = [batch[place] for place in keep], mask[kept], chosen[kept]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        logits = run(policy, chosen[:, None], mask, cache, keep=1)[:, -1]
    return rows


def _append(batch: list[_Row], chosen: list[int], ends: tuple[int, ...]) -> list[int]:
    """Add a token to each row that has not stopped. Return the positions of unfinished rows in the batch."""
    keep = []
    for place, (row, token) in enumerate(zip(batch, chosen, strict=True)):
        if row.stopped:
            continue
        if token in ends:
            row.stopped = True
        else:
            row.tokens.append(token)
            keep.append(place)
    return keep


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Return one token id per row. Raises RequestError if the model's output is not finite."""
    chances = torch.softmax(logits / temperature, dim=-1)
    if not torch.isfinite(chances).all():
        raise RequestError("the model's output is not finite; go back to an older checkpoint")
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def _finish(policy: Policy, row: _Row, max_bytes: int) -> Sampled:
    """Turn a row into a completion. A text over `max_bytes` is cut, and its finish reason is `length`."""
    tokens = row.tokens
    finish: Finish = "stop" if row.stopped else "length"
    text = policy.decode(tokens)
    while len(text.encode()) > max_bytes:
        excess = len(text.encode()) - max_bytes
        tokens = tokens[: -max(1, excess // 32)]
        text, finish = policy.decode(tokens), "length"
    return Sampled(text, finish, tuple(tokens))
