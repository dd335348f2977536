"""Decodes on a GPU: one CUDA graph, recorded once, computes each of the tokens.

A token of a small model takes a GPU a few milliseconds, and Python some fifty to ask for the thousand kernels of it.
A graph asks for all of them at once. It needs tensors that stay where they are and keep their shapes: the cache has
room for all tokens from the start, and completions that have ended are computed on.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sapo_node.learner.forward import attends_to_all, run, with_room
from sapo_node.learner.model import Policy
from sapo_protocol.printable import line_of

logger = logging.getLogger(__name__)


def has_graphs(policy: Policy, cache: DynamicCache) -> bool:
    """Return whether `StaticDecoder` can decode with this filled cache, and is faster."""
    plain = all(type(layer) is DynamicLayer for layer in cache.layers)
    return policy.device.type == "cuda" and attends_to_all(policy) and plain


class StaticDecoder:
    """Holds L lanes of `size` completions, which each get up to `steps` more tokens."""

    def __init__(self, policy: Policy, cache: DynamicCache, prompts: Tensor, *, size: int, steps: int) -> None:
        """`cache` holds the prompts of the lanes, and `prompts` is its mask, (L, P)."""
        lanes, cached = prompts.shape
        dtype, device = policy.model.dtype, policy.device
        self._policy = policy
        self._cache = cache
        self._ids = torch.zeros(lanes, size, dtype=torch.long, device=device)
        self._positions = prompts.sum(1, keepdim=True).repeat(1, size)
        self._now = torch.arange(steps, device=device) == 0
        """(steps,) the step whose tokens are read next."""
        for place, layer in enumerate(cache.layers):
            cache.layers[place] = _StaticLayer(layer, self._now, size)
        hidden = torch.finfo(dtype).min
        self._attention = torch.full((lanes, 1, size, cached + steps * size), hidden, dtype=dtype, device=device)
        """Added to the scores: each token attends to the prompt of its lane and to its own completion so far."""
        self._attention[..., :cached].masked_fill_(prompts.bool()[:, None, None], 0)
        self._own = torch.eye(size, dtype=torch.bool, device=device)[:, None]
        self._replay = self._recorded() if device.type == "cuda" else self._decode

    def logits(self, chosen: Tensor) -> Tensor:
        """Read the next token of each completion, (L, size), and return the logits after it, (L * size, V).

        The next call overwrites them.
        """
        self._ids.copy_(chosen)
        return self._replay()

    def _decode(self) -> Tensor:
        logits = self._read()
        self._positions += 1
        self._now.copy_(self._now.roll(1))
        return logits

    def _read(self) -> Tensor:
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
            self._read()
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
