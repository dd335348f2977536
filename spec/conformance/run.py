"""Runs the implementation under test: a process that reads request lines and writes response lines.

Whatever the process does, `ask` returns within TIME_LIMIT: an Answer, or a Fault if there is no valid response. After a
fault the driver kills the process, and the next request starts it again.
"""

import json
import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from threading import Thread
from typing import IO, Any, Self

from sapo_protocol import LocalError
from sapo_protocol.files import refuse_constant
from sapo_protocol.printable import excerpt

TIME_LIMIT = 10.0
"""Seconds in which the implementation must answer a request. For the first request they include its start."""

MAX_LINE = 1_000_000
"""Bytes of a response line, at most."""

_LAST_WORDS = 1.0
"""Seconds for which the driver waits for the exit status of a process that has closed its output, and for the rest of
what an ended process wrote to stderr.
"""

_MAX_WORDS = 4_000
"""Bytes of a line on stderr that are told as one, at most."""


class CannotRun(LocalError):
    """The command cannot be started, or answers none of the first requests."""


class Wrong(StrEnum):
    """What the implementation did instead of answering."""

    SILENT = "silent"
    ENDED = "ended"
    NO_ANSWER = "not an answer"
    SECOND_LINE = "more than one line"
    UNASKED = "spoke before it was asked"
    LONG_LINE = "line too long"


@dataclass(frozen=True, slots=True)
class Answer:
    """A valid response."""

    verdict: str
    output: Any = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no valid response."""

    what: Wrong
    detail: str


class _Failed(Exception):
    def __init__(self, what: Wrong, detail: str) -> None:
        super().__init__(what, detail)
        self.fault = Fault(what, detail)


class Implementation:
    """The process of the implementation under test. Use it as a context manager.

    The process has its own session, so that the driver can kill its children with it.
    """

    def __init__(
        self, command: Sequence[str], *, hear: Callable[[str], object] | None = None, time_limit: float = TIME_LIMIT
    ) -> None:
        """`hear` gets each line that the process writes to stderr, printable. Without it they are discarded."""
        self._command = list(command)
        self._hear = hear
        self._time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, request: Mapping[str, Any]) -> Answer | Fault:
        """Send one request and return the response. Raises CannotRun if the process cannot be started."""
        process = self._process or self._start()
        try:
            return _answer(_exchange(process, json.dumps(request).encode() + b"\n", self._time_limit))
        except _Failed as failed:
            self._stop()
            return failed.fault

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if self._hear else subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotRun(f"cannot start the command {self._command[0]!r}: {error.strerror}") from error
        if self._hear and self._process.stderr:
            self._listener = Thread(target=_listen, args=(self._process.stderr, self._hear), daemon=True)
            self._listener.start()
        return self._process

    def _stop(self) -> None:
        if self._process is None:
            return
        # Leaving this context waits for the process and closes its pipes.
        with self._process as process:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if self._listener:
                self._listener.join(_LAST_WORDS)
        self._process = None


def _listen(stream: IO[bytes], hear: Callable[[str], object]) -> None:
    """Tell each line of a stream until it ends, in a thread of its own: the process may write at any time."""
    with os.fdopen(os.dup(stream.fileno()), "rb") as lines:
        while line := lines.readline(_MAX_WORDS):
            if words := excerpt(line.decode("utf-8", "replace"), _MAX_WORDS):
                hear(words)


def _exchange(process: subprocess.Popen[bytes], request: bytes, time_limit: float) -> bytes:
    """Write the request while the process reads it, and read until the response line is complete."""
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
                # A pipe that is ready accepts PIPE_BUF bytes without blocking.
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
    """Return the number of bytes written.

    If the process has closed its input, all bytes count as written: its output decides about the response.
    """
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
        value = json.loads(line.decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise _Failed(Wrong.NO_ANSWER, _excerpt(line)) from None
    match value:
        case {"verdict": str(verdict), **rest} if rest.keys() <= {"output", "note"}:
            note = rest.get("note", "")
            if isinstance(note, str):
                return Answer(verdict, rest.get("output"), note)
    raise _Failed(Wrong.NO_ANSWER, _excerpt(line))


def _excerpt(data: bytes) -> str:
    """Return the first 100 bytes of an output, for people."""
    return repr(data[:100])[1:]
