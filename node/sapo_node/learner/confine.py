"""Limits what this process may use, before it reads a foreign model."""

import os
import resource
from contextlib import suppress

import psutil


def confine(*, seconds: int, memory: int, file_bytes: int) -> None:
    """Limit the resources of this process, and send its output to /dev/null.

    `seconds` is processor time. `memory` is in bytes, beyond what this process has mapped. `file_bytes` is the size of
    a file that it may write.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: psutil.Process().memory_info().vms + memory,
    }
    for what, bound in limits.items():
        # If the system lacks a limit or has a lower one, the process runs with that. Only the soft limits are set: at
        # the soft limit of processor time the kernel sends SIGXCPU, and at the hard one SIGKILL.
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (bound, resource.getrlimit(what)[1]))
