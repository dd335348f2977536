"""Samples several completions of each prompt at a temperature, without top-k or top-p.

The model reads each prompt once; the completions share its cache in lanes, see `forward`. A completion ends with an end
token of the model, or with the closing tag of its answer.

On a CPU the model does not read on what is finished: a lane is as wide as its neighbour with the most unfinished
completions, and finished lanes leave the batch, several at a time.

On a GPU one CUDA graph, recorded once, computes each of the tokens. A token of a small model takes a GPU a few
milliseconds, and Python takes some fifty to start its thousand kernels. A graph starts all of them at once. It needs
tensors that stay where they are and keep their shapes. So the cache has room for all tokens from the start, and the
model reads on completions that have ended.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sapo_node.groups.messages import Finish, GenerateRequest, RequestError, Sampled
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.encoding import within
from sapo_node.learner.forward import (
    Tokens,
    attends_to_all,
    lane_mask,
    lane_size,
    make_room,
    read_prompts,
    run,
    stems_of,
    with_room,
)
from sapo_node.learner.model import ModelError, Policy, Unreadable
from sapo_protocol.printable import line_of

logger = logging.getLogger(__name__)

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
    cache.reorder_cache(copied)
    mask = mask[copied]
    rows = [_Row(number=number % size, max_bytes=max_bytes) for number in range(len(prompts) * request.completions)]
    lanes = [rows[start : start + size] for start in range(0, len(rows), size)]
    decoder: _Decoder
    if has_graphs(policy, cache) and request.max_tokens > LEAST_REPLAYED:
        decoder = _Static(policy, cache, mask, lanes, steps=request.max_tokens - 1)
    else:
        decoder = _Narrowing(policy, cache, mask, lanes)
    logits = logits.repeat_interleave(request.completions, dim=0)  # (rows, vocabulary)
    for drawn in range(request.max_tokens):
        chosen, drawn_as = _draw(logits, request.temperature, generator)
        _append(policy, [row for lane in decoder.lanes for row in lane], drawn_as)
        if drawn + 1 == request.max_tokens or all(row.stopped for row in rows):
            break
        logits = decoder.read(chosen.view(len(decoder.lanes), -1))
    return rows


def has_graphs(policy: Policy, cache: DynamicCache) -> bool:
    """Return whether `_Static` can decode with this filled cache, and is faster."""
    plain = all(type(layer) is DynamicLayer for layer in cache.layers)
    return policy.device.type == "cuda" and attends_to_all(policy) and plain


class _Decoder(Protocol):
    lanes: list[list[_Row]]
    """The completions whose next tokens are drawn."""

    def read(self, chosen: Tensor) -> Tensor:
        """Read the drawn tokens, (lanes, width). Return the logits after those of `lanes`, which may now be fewer."""


class _Static:
    """Reads up to `steps` more tokens of all completions, finished or not, with one CUDA graph."""

    def __init__(
        self, policy: Policy, cache: DynamicCache, prompts: Tensor, lanes: list[list[_Row]], *, steps: int
    ) -> None:
        """`cache` holds the prompts of the L lanes, and `prompts` is its mask, (L, P)."""
        size, cached = len(lanes[0]), prompts.shape[1]
        dtype, device = policy.model.dtype, policy.device
        self.lanes = lanes
        self._policy = policy
        self._cache = cache
        self._ids = torch.zeros(len(lanes), size, dtype=torch.long, device=device)
        self._positions = prompts.sum(1, keepdim=True).repeat(1, size)
        self._now = torch.arange(steps, device=device) == 0
        """(steps,) the step whose tokens are read next."""
        for place, layer in enumerate(cache.layers):
            cache.layers[place] = _StaticLayer(layer, self._now, size)
        hidden = torch.finfo(dtype).min
        self._attention = torch.full((len(lanes), 1, size, cached + steps * size), hidden, dtype=dtype, device=device)
        """Added to the scores: each token attends to the prompt of its lane and to its own completion so far."""
        self._attention[..., :cached].masked_fill_(prompts.bool()[:, None, None], 0)
        self._own = torch.eye(size, dtype=torch.bool, device=device)[:, None]
        self._replay = self._recorded() if device.type == "cuda" else self._decode

    def read(self, chosen: Tensor) -> Tensor:
        """Read the drawn tokens, (L, size), and return the logits after them, (L * size, V). The next call overwrites
        the logits.
        """
        self._ids.copy_(chosen)
        return self._replay()

    def _decode(self) -> Tensor:
        logits = self._read_step()
        self._positions += 1
        self._now.copy_(self._now.roll(1))
        return logits

    def _read_step(self) -> Tensor:
        """Read the tokens into the place of this step. A second call changes nothing."""
        size, steps = self._ids.shape[1], len(self._now)
        completions = self._attention[..., -steps * size :].unflatten(-1, (steps, size))  # type: ignore[no-untyped-call]
        completions.masked_fill_(self._own & self._now[:, None], 0)
        return run(self._policy, self._ids, self._attention, self._positions, self._cache, keep=size).flatten(0, 1)

    def _recorded(self) -> Callable[[], Tensor]:
        """Return a function that replays `_decode`, or `_decode` itself if the model cannot be recorded."""
        # Kernels are loaded when they are first called, which a recording does not allow.
        aside = torch.cuda.Stream(self._policy.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._read_step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                logits = self._decode()
        except RuntimeError as error:
            # Some layers, for example of experts, read on the CPU what the GPU has computed. Nothing ran so far.
            logger.info("no CUDA graph: %s", line_of(error))
            return self._decode

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


class _StaticLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of the prompts, with room for all tokens of the completions."""

    def __init__(self, filled: DynamicLayer, now: Tensor, size: int) -> None:
        """`filled` holds the prompts, (L, heads, P, D)."""
        super().__init__()
        self.__dict__.update(vars(filled))
        self.keys, self.values = (with_room(states, len(now) * size) for states in (filled.keys, filled.values))
        self._rooms = [_room(states, len(now), size) for states in (self.keys, self.values)]
        self._now = now[:, None, None]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Put the states of this step, (L, heads, size, D), into its place. Return those of all steps."""
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            # A kernel that writes to a place by number would wait for the GPU, so as to be repeatable.
            torch.where(self._now, states[..., None, :, :], room, out=room)
        return self.keys, self.values


def _room(states: Tensor, steps: int, size: int) -> Tensor:
    """Return a view of the room, (L, heads, steps, size, D)."""
    room: Tensor = states[..., -steps * size :, :].unflatten(-2, (steps, size))  # type: ignore[no-untyped-call]
    return room


class _Narrowing:
    """Drops finished completions and lanes."""

    def __init__(self, policy: Policy, cache: DynamicCache, prompts: Tensor, lanes: list[list[_Row]]) -> None:
        make_room(cache)
        self.lanes = lanes
        self._policy, self._cache, self._prompts, self._size = policy, cache, prompts, len(lanes[0])
        self._owner = prompts.new_zeros(len(lanes), 0)
        self._steps = 0

    def read(self, chosen: Tensor) -> Tensor:
        device = self._policy.device
        going = [place for place, lane in enumerate(self.lanes) if not all(row.stopped for row in lane)]
        if len(going) <= CROWD * len(self.lanes):
            kept = torch.tensor(going, device=device)
            self._cache.reorder_cache(kept)
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
