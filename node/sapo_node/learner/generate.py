"""Samples several completions of each prompt at a temperature, without top-k or top-p.

The model reads each prompt once; the completions share its cache. A completion ends with an end token of the model, or
with the closing tag of its answer. Finished rows leave the batch, several at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sapo_node.groups.messages import Finish, GenerateRequest, RequestError, Sampled
from sapo_node.learner.forward import Tokens, make_room, read_prompts, run, stems_of
from sapo_node.learner.model import Policy

ROWS = 128
"""Completions in one batch, at most. It bounds memory."""
BELOW_ONE = 1 - 2**-20
"""Factor on random numbers between 0 and 1, so that rounding never takes one beyond the last token with a chance."""
CROWD = 0.75
"""Finished rows leave the batch when at most this share of its rows is unfinished: copying the cache costs time."""


@dataclass(slots=True)
class _Row:
    """One completion that is being sampled."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False


@torch.no_grad()
def generate(
    policy: Policy, request: GenerateRequest, max_completion_bytes: int, *, opening: str = ""
) -> list[tuple[Sampled, ...]]:
    """Sample the completions of every prompt. Raises RequestError if a prompt does not fit into the model.

    With an `opening`, the model continues prompt and opening. The completions do not contain the opening.
    """
    forced = policy.encode_foreign(opening) or []
    prompts = [(*policy.prompt_tokens(prompt), *forced) for prompt in request.prompts]
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
    policy: Policy, prompts: Sequence[Tokens], request: GenerateRequest, generator: torch.Generator
) -> list[_Row]:
    """Return the rows of a batch of prompts. Rows of one prompt are neighbours."""
    logits, cache, mask = read_prompts(policy, prompts, stems_of(policy, prompts))
    cache.batch_repeat_interleave(request.completions)
    make_room(cache)
    logits = logits.repeat_interleave(request.completions, dim=0)  # (rows, vocabulary)
    mask = mask.repeat_interleave(request.completions, dim=0)
    rows = [_Row() for _ in range(len(mask))]
    batch = list(rows)
    for drawn in range(request.max_tokens):
        chosen, drawn_as = _draw(logits, request.temperature, generator)
        keep = _append(policy, batch, drawn_as)
        if not keep or drawn + 1 == request.max_tokens:
            break
        if len(keep) <= CROWD * len(batch):
            kept = torch.tensor(keep, device=policy.device)
            cache.batch_select_indices(kept)
            batch, mask, chosen = [batch[place] for place in keep], mask[kept], chosen[kept]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        logits = run(policy, chosen[:, None], mask, cache, keep=1)[:, -1]
    return rows


def _append(policy: Policy, batch: list[_Row], drawn: Tensor) -> list[int]:
    """Add a token to each row that has not stopped. Return the positions of unfinished rows in the batch.

    `drawn` is (2, B): token ids and log-probabilities. Raises RequestError if the model's output is not finite.
    """
    # The only wait for the device per token.
    tokens, logprobs = drawn.tolist()
    keep = []
    for place, (row, token, logprob) in enumerate(zip(batch, map(int, tokens), logprobs, strict=True)):
        if not math.isfinite(logprob):
            raise RequestError("the model's output is not finite; go back to an older checkpoint")
        if row.stopped:
            continue
        if token in policy.ends:
            row.stopped = True
            continue
        row.tokens.append(token)
        row.logprobs.append(logprob)
        row.stopped = policy.closes_answer(row.tokens)
        if not row.stopped:
            keep.append(place)
    return keep


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return one token id per row, and both ids and their log-probabilities at temperature 1 as (2, B).

    The log-probability is not finite if the model's output is not.
    """
    chances = torch.softmax(logits / temperature, dim=-1)
    # Inverse transform sampling: one random number per row. torch.multinomial draws one per row and token.
    places = torch.rand(len(chances), 1, device=chances.device, generator=generator)
    reached = chances.cumsum(-1)
    chosen = torch.searchsorted(reached, places * BELOW_ONE * reached[:, -1:], right=True)
    chosen = chosen.clamp(max=chances.shape[-1] - 1)
    logprobs = logits.gather(1, chosen)[:, 0] - logits.logsumexp(-1)
    return chosen[:, 0], torch.stack([chosen[:, 0].double(), logprobs.double()])


def _finish(policy: Policy, row: _Row, max_bytes: int) -> Sampled:
    """Turn a row into a completion. A text over `max_bytes` is cut, and its finish reason is `length`."""
    tokens = row.tokens
    finish: Finish = "stop" if row.stopped else "length"
    text = policy.decode(tokens)
    while len(text.encode()) > max_bytes:
        excess = len(text.encode()) - max_bytes
        tokens = tokens[: -max(1, excess // 32)]
        text, finish = policy.decode(tokens), "length"
    return Sampled(text, finish, tuple(tokens), tuple(row.logprobs[: len(tokens)]))
