"""Bounds the memory of this process while it reads what may unfold to any size."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def memory_at_most(more: int) -> Iterator[None]:
    """Let this process map at most `more` bytes beyond those that it has mapped. More is a MemoryError.

    A system without /proc, or without this limit, has no bound.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
