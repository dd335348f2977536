"""The process that runs pip under limits: `python -m sapo_node.learner.download FILE_BYTES ARGUMENT...`.

pip compares the hash of a file when it has all of it, and reads an index page whole. So without limits a server, or
whoever answers in its place, could fill the disk and the memory.
"""

import runpy
import sys

from sapo_node.learner.confine import limit

SECONDS = 60
"""Seconds of processor time. pip takes 10 s for a wheel of 93 MB on a slow core."""
MEMORY = 2**30
"""Bytes that pip may map. It maps 0.2 GB."""


if __name__ == "__main__":
    limit(seconds=SECONDS, memory=MEMORY, file_bytes=int(sys.argv.pop(1)))
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
