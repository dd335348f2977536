"""Samples several completions of each prompt at a temperature, without top-k or top-p.

The model reads each prompt once; the completions share its cache, see `lanes`. A completion ends with an end token of
the model, or with the closing tag of its answer. The model does not read on what is finished: a lane is as wide as its
neighbour with the most unfinished completions, and finished lanes leave the batch, several at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.groups.messages import GenerateRequest, RequestError, Sampled
from sapo_node.learner.draft import Draft
from sapo_node.learner.forward import Tokens, make_room, read_prompts, run, stems_of
from sapo_node.learner.lanes import lane_mask, lane_size
from sapo_node.learner.model import Policy
from sapo_node.learner.states import select

ROWS = 128
"""Completions in one batch, at most. It bounds memory."""
BELOW_ONE = 1 - 2**-20
"""Factor on random numbers between 0 and 1, so that rounding never takes one beyond the last token with a chance."""
CROWD = 0.75
"""Finished lanes leave the batch when at most this share of its lanes is unfinished: copying the cache costs time."""


@dataclass(slots=True, kw_only=True)
class _Row(Draft):
    """One completion that is being sampled in a lane."""

    number: int
    """In its lane."""


@torch.no_grad()
def generate(
    policy: Policy, request: GenerateRequest, max_completion_bytes: int, *, opening: str = ""
) -> list[tuple[Sampled, ...]]:
    """Sample the completions of every prompt. Raises RequestError if a prompt does not fit into the model.

    With an `opening`, the model continues prompt and opening. The completions do not contain the opening.
    """
    prompts = prompts_of(policy, request, opening=opening)
    generator = torch.Generator(device=policy.device).manual_seed(request.seed)
    at_once = max(1, ROWS // request.completions)
    groups: list[tuple[Sampled, ...]] = []
    for start in range(0, len(prompts), at_once):
        rows = _sample(policy, prompts[start : start + at_once], request, generator)
        done = [row.finished(policy, max_completion_bytes) for row in rows]
        step = request.completions
        groups += [tuple(done[i : i + step]) for i in range(0, len(done), step)]
    return groups


def prompts_of(policy: Policy, request: GenerateRequest, *, opening: str = "") -> list[Tokens]:
    """Return the token ids of every prompt. Raises RequestError if a prompt does not fit into the model."""
    forced = policy.encode_foreign(opening) or []
    prompts = [(*policy.prompt_tokens(prompt), *forced) for prompt in request.prompts]
    longest = max((len(prompt) for prompt in prompts), default=0)
    if longest + request.max_tokens > policy.context:
        raise RequestError(
            f"a prompt of {longest} tokens and {request.max_tokens} new ones exceed the model's {policy.context}"
        )
    return prompts


def _sample(
    policy: Policy, prompts: Sequence[Tokens], request: GenerateRequest, generator: torch.Generator
) -> list[_Row]:
    """Return the rows of a batch of prompts. Rows of one prompt are neighbours."""
    logits, cache, mask = read_prompts(policy, prompts, stems_of(policy, prompts))
    most = min(lane_size(policy, prompts, request.max_tokens), request.completions)
    size = next(size for size in range(most, 0, -1) if request.completions % size == 0)
    copied = torch.arange(len(prompts), device=policy.device).repeat_interleave(request.completions // size)
    select(cache, copied)
    make_room(cache)
    mask = mask[copied]
    rows = [_Row(number=number % size) for number in range(len(prompts) * request.completions)]
    lanes = [rows[start : start + size] for start in range(0, len(rows), size)]
    owner = mask.new_zeros(len(lanes), 0)
    logits = logits.repeat_interleave(request.completions, dim=0)  # (rows, vocabulary)
    for drawn in range(request.max_tokens):
        chosen, drawn_as = _draw(logits, request.temperature, generator)
        _append(policy, [row for lane in lanes for row in lane], drawn_as)
        going = [place for place, lane in enumerate(lanes) if not all(row.stopped for row in lane)]
        if not going or drawn + 1 == request.max_tokens:
            break
        chosen = chosen.view(len(lanes), -1)
        if len(going) <= CROWD * len(lanes):
            kept = torch.tensor(going, device=policy.device)
            select(cache, kept)
            lanes, mask, owner, chosen = [lanes[place] for place in going], mask[kept], owner[kept], chosen[kept]
        slots = _unfinished_first(lanes)
        width = len(slots[0])
        lanes = [[lane[slot] for slot in each] for lane, each in zip(lanes, slots, strict=True)]
        ids = chosen.gather(1, torch.tensor(slots, device=policy.device))
        new = torch.tensor([[row.number for row in lane] for lane in lanes], device=policy.device)
        owner = torch.cat([owner, new], dim=1)
        positions = (mask.sum(1, keepdim=True) + drawn).expand(-1, width)
        attention = lane_mask(policy, mask, owner, size=size, asked=width)
        logits = run(policy, ids, attention, positions, cache, keep=width).flatten(0, 1)
    return rows


def _unfinished_first(lanes: Sequence[Sequence[_Row]]) -> list[list[int]]:
    """Return the positions of the rows of each lane that go on, the unfinished ones first. Lanes stay equally wide: a
    lane with fewer unfinished rows than another keeps finished ones.
    """
    width = max(sum(not row.stopped for row in lane) for lane in lanes)
    return [sorted(range(len(lane)), key=lambda slot: lane[slot].stopped)[:width] for lane in lanes]


def _append(policy: Policy, batch: Sequence[_Row], drawn: Tensor) -> None:
    """Add a token to each row that has not stopped.

    `drawn` is (2, B): token ids and log-probabilities. Raises RequestError if the model's output is not finite.
    """
    # The only wait for the device per token.
    tokens, logprobs = drawn.tolist()
    for row, token, logprob in zip(batch, map(int, tokens), logprobs, strict=True):
        if not math.isfinite(logprob):
            raise RequestError("the model's output is not finite; go back to an older checkpoint")
        if not row.stopped:
            row.add(policy, token, logprob)


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return one token id per row, and both ids and their log-probabilities at temperature 1 as (2, B).

    The log-probability is not finite if the model's output is not.
    """
    logits = logits.float()
    chances = torch.softmax(logits / temperature, dim=-1)
    # Inverse transform sampling: one random number per row. torch.multinomial draws one per row and token.
    places = torch.rand(len(chances), 1, device=chances.device, generator=generator)
    reached = chances.cumsum(-1)
    chosen = torch.searchsorted(reached, places * BELOW_ONE * reached[:, -1:], right=True)
    chosen = chosen.clamp(max=chances.shape[-1] - 1)
    logprobs = logits.gather(1, chosen)[:, 0] - logits.logsumexp(-1)
    return chosen[:, 0], torch.stack([chosen[:, 0].double(), logprobs.double()])
