"""Limits of this process: open files and mapped memory."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEEDED = 384
"""The most descriptors that a node has open: 64 connections of peers, 64 handshakes, 33 connections each of the
page and the feed, dials, pipes and files, and room for connections that are closing."""
_WANTED = 1_024


def raise_limit() -> str:
    """Raise the soft limit of open files. Return a line for the operator if it stays below NEEDED, else ''."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    highest = _WANTED if hard == unlimited else min(_WANTED, hard)
    if soft != unlimited and soft < highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        soft = highest
    if soft == unlimited or soft >= NEEDED:
        return ""
    return (
        f"this process may open {soft} files, and a node with all its connections needs {NEEDED}: others could keep "
        f"peers from connecting; raise the hard limit (ulimit -Hn {NEEDED})"
    )


def mapped_bytes() -> int:
    """The bytes that this process has mapped. Raises OSError on a system without /proc."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_at_most(more: int) -> Iterator[None]:
    """Within this context the process may map at most `more` further bytes. Beyond that it gets a MemoryError.

    A system without /proc, or without this limit, has no bound.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (mapped_bytes() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
