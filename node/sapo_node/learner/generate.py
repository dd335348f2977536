"""Samples several completions of each prompt at a temperature, without top-k or top-p.

The model reads each prompt once; the completions share its cache, see `lanes`. A completion ends with an end token of
the model, or with the closing tag of its answer. On a CPU the model does not read on what is finished: a lane is as
wide as its neighbour with the most unfinished completions, and finished lanes leave the batch, several at a time. On a
GPU fewer launches are worth more than that, see `static_cache`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from sapo_node.groups.messages import Finish, GenerateRequest, RequestError, Sampled
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.encoding import within
from sapo_node.learner.forward import Tokens, make_room, read_prompts, run, stems_of
from sapo_node.learner.lanes import lane_mask, lane_size
from sapo_node.learner.model import ModelError, Policy, Unreadable
from sapo_node.learner.states import select
from sapo_node.learner.static_cache import StaticDecoder, has_graphs

BELOW_ONE = 1 - 2**-20
"""Factor on random numbers between 0 and 1, so that rounding never takes one beyond the last token with a chance."""
LEAST_REPLAYED = 4
"""Most tokens that are read without a CUDA graph: to record one takes the time of some two tokens."""
CROWD = 0.75
"""Finished lanes leave the batch when at most this share of its lanes is unfinished: copying the cache costs time."""


DECIMALS = 6
"""Decimals of a log-probability. More say nothing in float32, and would make a stored batch a third larger."""
LOOK_EVERY = 32
"""Tokens between two looks at the bytes of a text: each look decodes the whole text."""


class PromptRefused(RequestError):
    """The chat template or the tokenizer fails on a prompt; nothing was sampled."""


class PromptTooLong(PromptRefused):
    """A prompt does not fit into the model; nothing was sampled."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """A completion that grows token by token.

    It ends with an end token of the model, which is no part of its text, with the closing tag of its answer, or when
    its text has more bytes than the swarm keeps.
    """

    max_bytes: int
    """Bytes of UTF-8 that the swarm keeps of its text."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    end: tuple[int, float] | None = None
    """The end token and its log-probability, if the completion has ended with one."""
    stopped: bool = False

    def add(self, policy: Policy, token: int, logprob: float) -> None:
        """Add the next token, and stop if the completion ends with it."""
        logprob = round(logprob, DECIMALS)
        if token in policy.ends:
            self.end, self.stopped = (token, logprob), True
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.stopped = policy.closes_answer(self.tokens) or self._is_full(policy)

    def _is_full(self, policy: Policy) -> bool:
        look = len(self.tokens) % LOOK_EVERY == 0
        return look and len(policy.decode(self.tokens).encode()) > self.max_bytes

    def finished(self, policy: Policy) -> Sampled:
        """Return the completion. A text over `max_bytes` is cut, and its finish reason is `length`."""
        tokens, text = within(self.tokens, self.max_bytes, policy.decode)
        whole = self.stopped and len(tokens) == len(self.tokens)
        finish: Finish = "stop" if whole else "length"
        end = self.end if whole else None
        return Sampled(text, finish, tuple(tokens), tuple(self.logprobs[: len(tokens)]), end=end)


@dataclass(slots=True, kw_only=True)
class _Row(Draft):
    """One completion that is being sampled in a lane."""

    number: int
    """In its lane."""


def generate(
    policy: Policy, request: GenerateRequest, max_completion_bytes: int, *, opening: str = ""
) -> list[tuple[Sampled, ...]]:
    """Sample the completions of every prompt. Raises PromptRefused if the model cannot be asked one of them.

    With an `opening`, the model continues prompt and opening. The completions do not contain the opening.
    """
    return sample(policy, prompts_of(policy, request, opening=opening), request, max_completion_bytes)


@torch.no_grad()
def sample(
    policy: Policy, prompts: Sequence[Tokens], request: GenerateRequest, max_completion_bytes: int
) -> list[tuple[Sampled, ...]]:
    """Sample the completions of prompts that are tokens already, instead of those in the request."""
    generator = torch.Generator(device=policy.device).manual_seed(request.seed)
    longest = max((len(prompt) for prompt in prompts), default=0) + request.max_tokens
    at_once = max(1, policy.at_once.rows(longest, policy.vocabulary) // request.completions)
    groups: list[tuple[Sampled, ...]] = []
    for start in range(0, len(prompts), at_once):
        rows = _sample(policy, prompts[start : start + at_once], request, max_completion_bytes, generator)
        done = [row.finished(policy) for row in rows]
        step = request.completions
        groups += [tuple(done[i : i + step]) for i in range(0, len(done), step)]
    return groups


def prompts_of(policy: Policy, request: GenerateRequest, *, opening: str = "") -> list[Tokens]:
    """Return the token ids of every prompt. Raises PromptTooLong if a prompt does not fit into the model, and
    PromptRefused if the chat template or the tokenizer fails on one.
    """
    forced = policy.encode_foreign(opening) or []
    try:
        prompts = [(*policy.prompt_tokens(prompt), *forced) for prompt in request.prompts]
    except (ModelError, Unreadable) as error:
        raise PromptRefused(str(error)) from error
    longest = max((len(prompt) for prompt in prompts), default=0)
    if longest + request.max_tokens > policy.context:
        raise PromptTooLong(
            f"a prompt of {longest} tokens and {request.max_tokens} new ones exceed the model's {policy.context}; give "
            "fewer --examples, or a lower --max-tokens"
        )
    return prompts


def refusal_of(policy: Policy, prompt: Prompt, request: GenerateRequest) -> PromptRefused | None:
    """Return why the model cannot be asked this prompt of a request; None if it can."""
    try:
        prompts_of(policy, replace(request, prompts=(prompt,)))
    except PromptRefused as refusal:
        return refusal
    return None


def _sample(
    policy: Policy, prompts: Sequence[Tokens], request: GenerateRequest, max_bytes: int, generator: torch.Generator
) -> list[_Row]:
    """Return the rows of a batch of prompts. Rows of one prompt are neighbours."""
    logits, cache, mask = read_prompts(policy, prompts, stems_of(policy, prompts))
    most = min(lane_size(policy, prompts, request.max_tokens), request.completions)
    size = next(size for size in range(most, 0, -1) if request.completions % size == 0)
    copied = torch.arange(len(prompts), device=policy.device).repeat_interleave(request.completions // size)
    select(cache, copied)
    mask = mask[copied]
    rows = [_Row(number=number % size, max_bytes=max_bytes) for number in range(len(prompts) * request.completions)]
    lanes = [rows[start : start + size] for start in range(0, len(rows), size)]
    decoder: _Decoder
    if has_graphs(policy, cache) and request.max_tokens > LEAST_REPLAYED:
        decoder = _Static(StaticDecoder(policy, cache, mask, size=size, steps=request.max_tokens - 1), lanes)
    else:
        decoder = _Narrowing(policy, cache, mask, lanes, size)
    logits = logits.repeat_interleave(request.completions, dim=0)  # (rows, vocabulary)
    for drawn in range(request.max_tokens):
        chosen, drawn_as = _draw(logits, request.temperature, generator)
        _append(policy, [row for lane in decoder.lanes for row in lane], drawn_as)
        if drawn + 1 == request.max_tokens or all(row.stopped for row in rows):
            break
        logits = decoder.read(chosen.view(len(decoder.lanes), -1))
    return rows


class _Decoder(Protocol):
    lanes: list[list[_Row]]
    """The completions whose next tokens are drawn."""

    def read(self, chosen: Tensor) -> Tensor:
        """Read the drawn tokens, (lanes, width). Return the logits after those of `lanes`, which may now be fewer."""


@dataclass
class _Static:
    """Reads on what is finished, with one CUDA graph."""

    decoder: StaticDecoder
    lanes: list[list[_Row]]

    def read(self, chosen: Tensor) -> Tensor:
        return self.decoder.logits(chosen)


class _Narrowing:
    """Drops what is finished."""

    def __init__(
        self, policy: Policy, cache: DynamicCache, prompts: Tensor, lanes: list[list[_Row]], size: int
    ) -> None:
        make_room(cache)
        self.lanes = lanes
        self._policy, self._cache, self._prompts, self._size = policy, cache, prompts, size
        self._owner = prompts.new_zeros(len(lanes), 0)
        self._steps = 0

    def read(self, chosen: Tensor) -> Tensor:
        device = self._policy.device
        going = [place for place, lane in enumerate(self.lanes) if not all(row.stopped for row in lane)]
        if len(going) <= CROWD * len(self.lanes):
            kept = torch.tensor(going, device=device)
            select(self._cache, kept)
            self.lanes = [self.lanes[place] for place in going]
            self._prompts, self._owner, chosen = self._prompts[kept], self._owner[kept], chosen[kept]
        slots = _unfinished_first(self.lanes)
        width = len(slots[0])
        self.lanes = [[lane[slot] for slot in each] for lane, each in zip(self.lanes, slots, strict=True)]
        ids = chosen.gather(1, torch.tensor(slots, device=device))
        new = torch.tensor([[row.number for row in lane] for lane in self.lanes], device=device)
        self._owner = torch.cat([self._owner, new], dim=1)
        positions = (self._prompts.sum(1, keepdim=True) + self._steps).expand(-1, width)
        self._steps += 1
        attention = lane_mask(self._policy, self._prompts, self._owner, size=self._size, asked=width)
        return run(self._policy, ids, attention, positions, self._cache, keep=width).flatten(0, 1)


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
