"""Limits what this process may use, before it reads a foreign model or asks a foreign server for one."""

import os
import resource
from contextlib import suppress

from sapo_node.processes.memory import mapped_bytes


def confine(*, seconds: int, memory: int, file_bytes: int) -> None:
    """Limit the resources of this process as `limit` does, and send its output to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    limit(seconds=seconds, memory=memory, file_bytes=file_bytes)


def limit(*, seconds: int, memory: int, file_bytes: int) -> None:
    """Limit the resources of this process.

    `seconds` is processor time. `memory` is in bytes, beyond what this process has mapped. `file_bytes` is the size of
    a file that it may write.
    """
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_FSIZE, file_bytes)
    _set(resource.RLIMIT_CPU, seconds)
    with suppress(OSError):
        _set(resource.RLIMIT_AS, mapped_bytes() + memory)


def _set(what: int, bound: int) -> None:
    # If the system lacks a limit or has a lower one, the process runs with that. Only the soft limits are set: at the
    # soft limit of processor time the kernel sends SIGXCPU, and at the hard one SIGKILL.
    with suppress(OSError, ValueError):
        resource.setrlimit(what, (bound, resource.getrlimit(what)[1]))
