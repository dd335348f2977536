"""How torch is set up for work that must give the same numbers everywhere, and share a machine with others like it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_core() -> Iterator[None]:
    """One thread, and denormals flushed: a policy that is very sure of itself makes them, and they are slow.

    Both hold for the whole process, so both are put back.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
