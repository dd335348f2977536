"""A child process with pipes for trio, in its own session. The child and all its children end with this process.

`listen` reads the stderr of a child for the log. A child that inherited stderr would write to the operator's terminal,
and its libraries quote foreign text unchanged: transformers prints the names of tensors in a model folder.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import trio

from sapo_protocol.printable import excerpt

_LAUNCH = Path(__file__).with_name("launch.py")
_POLL = 0.02

LINES = 20
"""Most lines that `listen` tells of one read: the last ones."""
_PAUSE = 0.1
"""Seconds until the next read after a read with more lines, so that the child waits and the node does not."""
_CHUNK = 65_536


class ChildProcess:
    """One child, from its start to its reaping by `end`."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, capture_stderr: bool = False
    ) -> None:
        """If `env` is None, the child inherits this environment. If stderr is not captured, it inherits stderr."""
        # Started in this thread: the kernel ends the child when the thread that started it ends, as pool threads do.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if capture_stderr else None,
            env=None if env is None else dict(env),
            bufsize=0,
            start_new_session=True,  # Ctrl-C at the terminal reaches only the node, which then ends the child
        )
        self.stdin, self.stdout = _stream(self._process.stdin), _stream(self._process.stdout)
        self.stderr = _stream(self._process.stderr) if capture_stderr else None

    @property
    def pid(self) -> int:
        """The process id of the child. No other process gets this id until `end` has returned."""
        return self._process.pid

    async def end(self, *, grace: float) -> int:
        """End the child and everything in its session, reap it, and return its exit status as `subprocess` does.

        If `grace` is above 0, the child first gets SIGTERM and `grace` seconds to end by itself.
        """
        await self.stdin.aclose()
        if grace:
            self._signal(signal.SIGTERM)
            with trio.move_on_after(grace):
                await self.exited()
        self._signal(signal.SIGKILL)
        await self.exited()
        status = self._process.wait()
        await self.stdout.aclose()
        if self.stderr is not None:
            await self.stderr.aclose()
        return status

    async def exited(self) -> None:
        """Wait until the child has ended."""
        while self._is_running():  # noqa: ASYNC110 - an exit sets no trio.Event
            await trio.sleep(_POLL)

    def _is_running(self) -> bool:
        """Return whether the child runs. Does not reap it: until `end` kills it, the kernel must not reuse its id."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the unreaped child and all that it started: the child leads its own process group."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            self._process.send_signal(number)


def _stream(pipe: IO[bytes] | None) -> trio.lowlevel.FdStream:
    assert pipe is not None
    stream = trio.lowlevel.FdStream(os.dup(pipe.fileno()))
    pipe.close()
    return stream


async def listen(stream: trio.abc.ReceiveStream, tell: Callable[[str], None]) -> None:
    """Call `tell` with the `excerpt` of each line of a stream until the stream ends, without empty lines.

    The last line needs no line break. `listen` tells it even when it is cancelled.
    """
    rest = b""
    try:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_CHUNK:]
            if len(lines) > LINES:
                tell(f"({len(lines) - LINES} lines left out)")
            for line in lines[-LINES:]:
                _tell(line, tell)
            if len(lines) > LINES:
                await trio.sleep(_PAUSE)
    except (trio.ClosedResourceError, trio.BrokenResourceError):
        pass
    finally:
        _tell(rest, tell)


def _tell(line: bytes, tell: Callable[[str], None]) -> None:
    if words := excerpt(line.decode("utf-8", "replace")):
        tell(words)
