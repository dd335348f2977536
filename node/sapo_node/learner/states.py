"""Caches of models with recurrent layers, which sum up all tokens before in a state of fixed size.

Such a layer is the gated delta net of Qwen3.5, the Mamba-2 of Granite 4, or the short convolution of LFM2. Its state
after a prompt is copied for each completion of the prompt.

transformers overwrites a state in place. Autograd needs the old state for the gradient of the prompt, and gradient
checkpointing needs it to compute a layer again. So the layers here put a new state in the place of the old one.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionAndFullAttentionLayer, LinearAttentionLayer

RECURRENT = frozenset(
    {"bamba", "falcon_h1", "granitemoehybrid", "lfm2", "lfm2_moe", "olmo_hybrid", "qwen3_5_text", "qwen3_next"}
)
"""The model types with recurrent layers that the node can train. A test of each shows that reading a text in two parts
gives the probabilities of reading it at once. transformers does not do that for Mamba, Jamba and RWKV."""


class _StateLayer(LinearAttentionLayer):  # type: ignore[misc]
    """The states of one recurrent layer, by their number in it."""

    conv_states: dict[int, Tensor]
    recurrent_states: dict[int, Tensor]
    has_previous_state: dict[int, bool]
    is_conv_states_initialized: dict[int, bool]
    is_recurrent_states_initialized: dict[int, bool]
    device: torch.device | None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # So the model calls update_conv_state for single tokens as well, and no kernel that writes in place.
        self.record_past = True

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any
    ) -> Tensor:
        """Append the inputs of a convolution. Return those that it needs for the new tokens."""
        if self.has_previous_state[state_idx]:
            conv_states = torch.cat([self.conv_states[state_idx], conv_states], dim=-1)
        size = conv_kernel_size or conv_states.shape[-1]
        last = pad(conv_states, (max(0, size - conv_states.shape[-1]), 0))[..., -size:]
        self.conv_states = {**self.conv_states, state_idx: last}
        self.is_conv_states_initialized = {**self.is_conv_states_initialized, state_idx: True}
        self.has_previous_state = {**self.has_previous_state, state_idx: True}
        self.device = last.device
        return conv_states

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
        """Take the state after the new tokens."""
        self.recurrent_states = {**self.recurrent_states, state_idx: recurrent_states}
        self.is_recurrent_states_initialized = {**self.is_recurrent_states_initialized, state_idx: True}
        return recurrent_states


class _MixedLayer(_StateLayer, LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]
    """The states, keys and values of a layer that is recurrent and attends."""


_REPLACED = {LinearAttentionLayer: _StateLayer, LinearAttentionAndFullAttentionLayer: _MixedLayer}


def new_cache(config: Any) -> DynamicCache:
    """Return an empty cache for a model of these settings."""
    cache = DynamicCache(config=config)
    for place, layer in enumerate(cache.layers):
        if type(layer) in _REPLACED:
            cache.layers[place] = _REPLACED[type(layer)](number_of_states=layer.number_of_states)
    return cache


def is_recurrent(config: Any) -> bool:
    """Return whether a model of these settings has recurrent layers."""
    return any(isinstance(layer, LinearAttentionLayer) for layer in DynamicCache(config=config).layers)


def select(cache: DynamicCache, rows: Tensor) -> None:
    """Keep these rows of the batch, in this order. A row may be kept several times."""
    cache.reorder_cache(rows)
