"""Runs a reader: a process that is asked by lines on its standard input and answers by lines on its standard output.

Whatever the process does, `ask` comes back within the time limit: with its answer, or with the fault that took the
answer's place. After a fault the process is ended, and the next question starts it again.
"""

import json
import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from sapo_protocol import LocalError

TIME_LIMIT = 10.0
"""Seconds in which a reader must answer; its start counts towards the first answer."""

MAX_LINE = 1_000_000
"""Bytes of an answer."""

_LAST_WORDS = 1.0
"""Seconds in which a process that has closed its output may end, so that its exit status can be told."""


class CannotRun(LocalError):
    """A command cannot be started, or is no reader."""


class Wrong(StrEnum):
    """What a reader did instead of answering."""

    SILENT = "silent"
    ENDED = "ended"
    NO_ANSWER = "not an answer"
    SECOND_LINE = "more than one line"
    UNASKED = "spoke before it was asked"
    LONG_LINE = "line too long"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader said."""

    verdict: str
    output: Any = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no answer."""

    what: Wrong
    detail: str


class _Failed(Exception):
    def __init__(self, what: Wrong, detail: str) -> None:
        super().__init__(what, detail)
        self.fault = Fault(what, detail)


class Implementation:
    """A reader's process, in a session of its own so that what it starts ends with it. Use as a context manager."""

    def __init__(self, command: Sequence[str], *, time_limit: float = TIME_LIMIT) -> None:
        self._command = list(command)
        self._time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, request: Mapping[str, Any]) -> Answer | Fault:
        """Put one request. Raises CannotRun when there is no process to put it to."""
        process = self._process or self._start()
        try:
            return _answer(_exchange(process, json.dumps(request).encode() + b"\n", self._time_limit))
        except _Failed as failed:
            self._stop()
            return failed.fault

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise CannotRun(f"cannot start the reader {self._command[0]!r}: {error.strerror}") from error
        return self._process

    def _stop(self) -> None:
        if self._process is None:
            return
        # Leaving this context waits for the process and closes its pipes.
        with self._process as process, suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._process = None


def _exchange(process: subprocess.Popen[bytes], request: bytes, time_limit: float) -> bytes:
    """Write one line while the reader takes it, and read until the line that answers it is whole."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + time_limit
    unsent, line = memoryview(request), b""
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.stdout, selectors.EVENT_READ)
        pipes.register(process.stdin, selectors.EVENT_WRITE)
        while b"\n" not in line:
            ready = {key.fileobj for key, _ in pipes.select(max(0.0, deadline - time.monotonic()))}
            if process.stdout in ready:
                chunk = os.read(process.stdout.fileno(), MAX_LINE)
                _check(process, chunk, asked=not unsent)
                line += chunk
                if len(line) > MAX_LINE:
                    raise _Failed(Wrong.LONG_LINE, f"more than {MAX_LINE:,} bytes")
            elif process.stdin in ready:
                # A pipe that is ready takes this much without waiting.
                unsent = unsent[_write(process, unsent[: select.PIPE_BUF]) :]
                if not unsent:
                    pipes.unregister(process.stdin)
            else:
                raise _Failed(Wrong.SILENT, f"no answer within {time_limit:g} s")
    answer, _, rest = line.partition(b"\n")
    if rest:
        raise _Failed(Wrong.SECOND_LINE, _excerpt(rest))
    return answer


def _write(process: subprocess.Popen[bytes], data: memoryview) -> int:
    """Bytes written. A reader that no longer listens is judged by what it does, not by this."""
    assert process.stdin is not None
    try:
        return os.write(process.stdin.fileno(), data)
    except BrokenPipeError:
        return len(data)


def _check(process: subprocess.Popen[bytes], chunk: bytes, *, asked: bool) -> None:
    if not chunk:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
        status = process.returncode
        raise _Failed(Wrong.ENDED, "it closed its output" if status is None else f"its exit status is {status}")
    if not asked:
        raise _Failed(Wrong.UNASKED, _excerpt(chunk))


def _answer(line: bytes) -> Answer:
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _Failed(Wrong.NO_ANSWER, _excerpt(line)) from None
    match value:
        case {"verdict": str(verdict), **rest} if rest.keys() <= {"output", "note"}:
            note = rest.get("note", "")
            if isinstance(note, str):
                return Answer(verdict, rest.get("output"), note)
    raise _Failed(Wrong.NO_ANSWER, _excerpt(line))


def _excerpt(data: bytes) -> str:
    """The beginning of what a reader wrote, for people."""
    return repr(data[:100])[1:]
