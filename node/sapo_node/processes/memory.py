"""What memory this process has mapped, and a bound for it while it reads what may unfold to any size."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def mapped_bytes() -> int:
    """Return how many bytes this process has mapped. Raises OSError on a system without /proc."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_at_most(more: int) -> Iterator[None]:
    """Let this process map at most `more` bytes beyond those that it has mapped. More is a MemoryError.

    A system without /proc, or without this limit, has no bound.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (mapped_bytes() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
