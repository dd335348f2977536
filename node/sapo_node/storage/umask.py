"""Who may read and write the files that this process and its children make. The umask belongs to the whole process."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITE = stat.S_IWGRP | stat.S_IWOTH


def deny_writing() -> None:
    """From now on only the owner can write what is made: keys, converted models, exports."""
    os.umask(os.umask(_WRITE) | _WRITE)


@contextmanager
def for_owner_alone() -> Iterator[None]:
    """Within this context only the owner can read what is made.

    Use this only while the process writes no file that others may read.
    """
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)
