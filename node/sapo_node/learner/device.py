"""The device that the learner runs on, and how much memory it has."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import torch

from sapo_node.groups.messages import Dtype
from sapo_node.learner.folder import ModelError

_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")


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
