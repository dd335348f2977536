"""How much the learner computes at once, by model and device.

A CPU computes small batches as fast as large ones. A GPU needs Python to start a thousand kernels for a batch, whatever
its size, and so it takes batches as large as a share of its memory allows. All bounds depend on the size of the memory
and not on what is free: a replay must cut the same batches.
"""

from dataclasses import dataclass
from typing import Any

import torch

ROWS = 128
"""Completions that are sampled at once, at least."""
READ = 2048
"""Tokens that the model reads for one micro-batch, at most on a CPU and at least on a GPU; twice as many of one
prompt and its completions."""
_LOGITS = (2**26, 2**28)
"""Bounds of `AtOnce.logits` on a CPU: 256 MiB and 1 GiB in float32."""
_LOGITS_OF_GPU = 2**30
"""The upper one on a GPU."""
_LOGITS_SHARE = 2**-5
"""Share of the memory of a device that the logits of a batch take in float32, at most."""
_SHARE = 2**-3
"""Share of the memory of a GPU for the cache of sampling, and for what a micro-batch keeps for the backward pass."""
_KEPT = 64
"""Numbers that a layer keeps of a token for the backward pass, in widths of the model, at most. A layer of Llama's
shape keeps 20 to 22, and more with adapters."""
_CACHE = 16
"""Tokens in the cache of a micro-batch for each token that the model reads, at most."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Upper bounds of what one batch holds."""

    sampled: int = 0
    """Tokens in the cache of sampling, prompts included. A batch has ROWS completions whatever they hold."""
    read: int = READ
    """Tokens that the model reads for one micro-batch of several prompts: stems, prompts and padded completions."""
    logits: int = _LOGITS[0]
    """Logits of one micro-batch, and of one token of all completions that are sampled at once."""

    @property
    def cached(self) -> int:
        """Tokens in the cache of one micro-batch, if each completion has a copy of its prompt."""
        return _CACHE * self.read

    def rows(self, tokens: int, vocabulary: int) -> int:
        """Return how many completions are sampled at once, each with so many tokens, those of its prompt included."""
        return max(ROWS, min(self.sampled // tokens, self.logits // vocabulary))


def at_once(config: Any, dtype: torch.dtype, device: str, memory: int, *, trained_layers: int) -> AtOnce:
    """Return the bounds for a model of this config on a device of this type with so many bytes of memory.

    `trained_layers` counts the layers of which the backward pass needs something.
    """
    logits = max(int(_LOGITS_SHARE * memory) // torch.float32.itemsize, _LOGITS[0])
    if device != "cuda":
        return AtOnce(logits=min(logits, _LOGITS[1]))
    share = int(_SHARE * memory) // dtype.itemsize
    return AtOnce(
        sampled=share // _cached(config),
        read=max(READ, share // (_KEPT * int(config.hidden_size) * trained_layers)),
        logits=min(logits, _LOGITS_OF_GPU),
    )


def _cached(config: Any) -> int:
    """Return how many numbers the cache holds of a token, at least 1: a model may be without attention."""
    heads = int(getattr(config, "num_attention_heads", 0))
    head = int(getattr(config, "head_dim", None) or int(config.hidden_size) // max(1, heads))
    kept = int(getattr(config, "num_key_value_heads", None) or heads)
    return max(1, 2 * kept * head * int(config.num_hidden_layers))
