"""Imports the tasks of other packages, each in a forked process that may hang or die in the zygote's place.

A module that makes no trouble there is imported by the zygote too. The import may read files, so it comes before the
zygote gives up its rights.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sapo_node.processes.launch import die_with_parent
from sapo_node.verification.tasks import TaskError, plugins

WALL_SECONDS = 5.0
"""Time in which all imports must have ended."""

_SOUND = "sound"
_MOST = 1_000
"""Bytes of a reason."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A process that imports the module of one dataset, and the pipe for what it finds."""

    dataset: str
    pid: int
    reader: int
    deadline: float


def start_probes(datasets: Iterable[str], private: Sequence[int]) -> list[Probe]:
    """Begin to import each dataset's module; `private` descriptors are kept from them."""
    zygote, deadline = os.getpid(), time.monotonic() + WALL_SECONDS
    probes: list[Probe] = []
    for dataset in datasets:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _import(dataset, zygote, writer, (*private, reader, *(probe.reader for probe in probes)))
        os.close(writer)
        os.set_blocking(reader, False)
        probes.append(Probe(dataset, pid, reader, deadline))
    return probes


def fault_of(probe: Probe) -> str:
    """Why the module of a probe cannot be used; empty when it can. Ends and reaps its process."""
    status = _wait(probe)
    try:
        found = os.read(probe.reader, _MOST).decode("utf-8", "replace")
    except BlockingIOError:
        # A process that the module started holds the other end.
        found = ""
    os.close(probe.reader)
    if status is None:
        return f"its import does not end within {WALL_SECONDS:g} s"
    if found:
        return "" if found == _SOUND else found
    return f"its import ended the process with status {status}"


def _wait(probe: Probe) -> int | None:
    """The exit status, negative for a signal; None of a process that had to be killed at its deadline."""
    while True:
        pid, status = os.waitpid(probe.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > probe.deadline:
            os.kill(probe.pid, signal.SIGKILL)
            os.waitpid(probe.pid, 0)
            return None
        time.sleep(0.01)


def _import(dataset: str, zygote: int, writer: int, foreign: Sequence[int]) -> NoReturn:
    """Runs in the forked process. What the module prints goes nowhere: the zygote has turned stdout away by now."""
    try:
        for descriptor in foreign:
            os.close(descriptor)
        die_with_parent(zygote)
        try:
            plugins.of(dataset)
            found = _SOUND
        except TaskError as error:
            found = str(error)
        os.write(writer, found.encode("utf-8", "replace")[:_MOST])
    finally:
        # Not sys.exit: that would wait for threads which the module started.
        os._exit(1)
