"""The device that the learner runs on, how much memory it has, and how much the learner computes at once.

A CPU computes small batches as fast as large ones. A GPU needs Python to start a thousand kernels for a batch, whatever
its size, and so it takes batches as large as a share of its memory allows. All bounds depend on the size of the memory
and not on what is free: a replay must cut the same batches.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from sapo_node.groups.messages import Dtype
from sapo_node.learner.folder import ModelError

_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
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


def pick_device(wanted: str) -> torch.device:
    """Return the device `wanted`; for `auto` the first of cuda, mps and cpu. Raises ModelError if it is missing."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return torch.device(next(name for name, found in there.items() if found))
    if not there.get(wanted):
        raise ModelError(f"there is no device {wanted}; torch finds {', '.join(n for n, f in there.items() if f)}")
    return torch.device(wanted)


def set_up(device: torch.device) -> None:
    """Make CUDA repeat a step as far as its kernels can: a replay of the same requests should give the same weights.

    Where an operation has no repeatable kernel, torch warns and computes all the same. Call this before anything is
    computed.
    """
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS is not repeatable
        torch.use_deterministic_algorithms(True, warn_only=True)
        # A search for bugs, which takes time.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        # For each shape of a batch that it has not seen, cuDNN plans attention anew, which takes about a second. The
        # batches of a round have shapes of their own.
        torch.backends.cuda.enable_cudnn_sdp(False)


def free_memory(device: torch.device) -> int:
    """Return the bytes on a device that this process may still allocate. What torch caches of freed tensors counts."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + cached)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return min([int(psutil.virtual_memory().available), *_container_memory()])


def pick_dtype(wanted: Dtype, device: torch.device) -> torch.dtype:
    """Return the number format `wanted`; for `auto` bfloat16 if the device computes in it, else float32."""
    if wanted != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[wanted]
    return torch.bfloat16 if computes_bfloat16(device) else torch.float32


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether the device has instructions for bfloat16."""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else device.type == "cpu" and _bfloat16_cpu()


def _bfloat16_cpu() -> bool:
    """Return whether the processor has instructions for bfloat16. torch has no public name for this."""
    with suppress(OSError):
        words = {word for line in _CPUINFO.read_text().splitlines() for word in line.split()}
        return not words.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})
    return False


def total_memory(device: torch.device) -> int:
    """Return the bytes of memory of a device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return int(psutil.virtual_memory().total)


def _container_memory() -> Iterator[int]:
    """Yield the bytes that the limit of a Linux container leaves, if there is a limit. psutil does not know it."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        yield int(limit) - int(used)
    except (OSError, ValueError):
        return


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
        sampled=share // cached_numbers(config),
        read=max(READ, share // (_KEPT * int(config.hidden_size) * trained_layers)),
        logits=min(logits, _LOGITS_OF_GPU),
    )


def cached_numbers(config: Any) -> int:
    """Return how many numbers the cache holds of a token, at least 1: a model may be without attention."""
    heads = int(getattr(config, "num_attention_heads", 0))
    head = int(getattr(config, "head_dim", None) or int(config.hidden_size) // max(1, heads))
    kept = int(getattr(config, "num_key_value_heads", None) or heads)
    return max(1, 2 * kept * head * int(config.num_hidden_layers))
