"""Tries to import the task modules of other packages, each in a forked process. If one hangs or dies, the zygote lives.

The zygote then imports the modules that passed. An import may read files, so it happens before the zygote confines
itself.
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
"""Seconds in which all imports must end."""

_SOUND = "sound"
_MOST = 1_000
"""Bytes of a reason, at most."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A process that imports the module of one dataset, and the pipe for its result."""

    dataset: str
    pid: int
    reader: int
    deadline: float


def start_probes(datasets: Iterable[str], private: Sequence[int]) -> list[Probe]:
    """Start a process per dataset that imports its module. These processes close the `private` descriptors."""
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
    """Return why the module of a probe cannot be used; empty if it can. Ends and reaps the process."""
    status = _wait(probe)
    try:
        found = os.read(probe.reader, _MOST).decode("utf-8", "replace")
    except BlockingIOError:
        # The module started a process that still holds the other end of the pipe.
        found = ""
    os.close(probe.reader)
    if status is None:
        return f"its import does not end within {WALL_SECONDS:g} s"
    if found:
        return "" if found == _SOUND else found
    return f"its import ended the process with status {status}"


def _wait(probe: Probe) -> int | None:
    """Return the exit status, negative for a signal. At its deadline kill the process and return None."""
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
    """Import the module, in the forked process. Its stdout is /dev/null, as the zygote's is by now."""
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
        # sys.exit would wait for threads that the module started.
        os._exit(1)
