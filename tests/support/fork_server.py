"""Commands in processes of their own, without the seconds that imports take: one process imports, and forks for each.

This file is both sides: `ForkServer` starts it as a program, which reads a command a line and answers a line.
"""

import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

MEMORY = 8 * 2**30
"""Bytes of address space of a command: one that reads /dev/zero to its end fails, and the machine goes on."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int | None
    """Exit code; None where the command was killed, since it was late."""
    out: str
    err: str
    seconds: float


class ForkServer:
    """Runs commands one after the other. Use as a context manager."""

    def __init__(self, folder, environment):
        """Commands run in `folder`."""
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def run(self, program, *arguments, limit):
        """Run `program`, which is sapo_node or sapo_adversary, for at most `limit` seconds."""
        self._process.stdin.write(json.dumps([program, arguments, limit]) + "\n")
        self._process.stdin.flush()
        return Done(*json.loads(self._process.stdout.readline()))


def serve():
    """Answer commands until stdin ends. A fork returns from here as well, with the command that it shall run."""
    for package in ("sapo_node.cli.commands", "sapo_adversary.cli"):
        for module in sorted(Path(import_module(package).__file__).parent.glob("[a-z]*.py")):
            import_module(f"{package}.{module.stem}")
    gc.freeze()  # else each fork looks through, and so copies, all that was imported
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has one thread, and others may hold locks"
    while line := sys.stdin.readline():
        program, arguments, limit = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            begun = time.monotonic()
            pid = os.fork()
            if not pid:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno())):
                    os.dup2(file, number)
                sys.stdin = os.fdopen(0)  # the one of the server has been read from
                return program, arguments
            code = _end(pid, limit)
            seconds = time.monotonic() - begun
            texts = [os.pread(file.fileno(), 1_000_000, 0).decode("utf-8", "surrogateescape") for file in (out, err)]
        sys.stdout.write(json.dumps([code, *texts, seconds]) + "\n")
        sys.stdout.flush()
    return None


def _end(pid, limit):
    """The exit code of a process, which is killed when it is late, and with it what it has left running."""
    handle = os.pidfd_open(pid)
    in_time, _, _ = select.select([handle], [], [], limit)
    os.close(handle)
    os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


def _finish(main):
    """Run `main` and end without the time in which the interpreter takes down all that was imported."""
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__" and (command := serve()):
    sys.argv = [command[0].replace("_", "-"), *command[1]]
    _finish(import_module(f"{command[0]}.cli.entry").main)
