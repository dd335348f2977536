"""Runs one child process that answers framed requests, and replaces it if it fails.

- The child that got a request answers it, or the request raises WorkerFailed.
- If a child dies, answers late or sends an invalid frame, the worker kills it, reaps it, and starts a new child after
  a back-off.
- No child outlives this process.

The child reads frames from stdin and writes frames to stdout. Its first frame is {"ready": {...}}, or
{"fatal": "one line"} if no restart can help. What it writes to stderr goes to the log, line by line.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from sapo_node.processes.child import ChildProcess, listen
from sapo_node.processes.frames import MAX_FRAME, FrameError, receive_frame, send_frame
from sapo_protocol.errors import LocalError

if TYPE_CHECKING:
    from trio_typing import TaskStatus as _TaskStatus  # libp2p brings these stubs, and they hide trio's own types

    TaskStatus = _TaskStatus[None]
else:
    TaskStatus = trio.TaskStatus[None]

FIRST_BACKOFF = 0.2
MAX_BACKOFF = 10.0
"""Seconds from the end of a child to the next start: the first, and the longest. Each restart doubles them."""
STOP_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL when the worker is cancelled."""
_LAST_WORDS = 0.5
"""Seconds in which stderr of a child that has ended is read to its end."""
START_ATTEMPTS = 3
"""Children that may die before one has been ready. After that the worker replaces every child that dies."""


class WorkerFailed(LocalError):
    """The child did not answer the request: it died, was late or sent an invalid frame."""


@dataclass(slots=True, eq=False)
class _Child:
    """One run of the child process."""

    process: ChildProcess
    replies: trio.MemorySendChannel[Any]
    received: trio.MemoryReceiveChannel[Any]
    asked: bool = False
    discarded: trio.Event = field(default_factory=trio.Event)


class Worker:
    """A child process that handles one request at a time. `request` works only while `run` runs."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        start_deadline: float,
        env: Mapping[str, str] | None = None,
        reply_limit: int = MAX_FRAME,
        log: logging.Logger | None = None,
    ) -> None:
        """`argv` starts the child, which must be ready within `start_deadline` seconds.

        If `env` is None, the child inherits this environment.
        """
        self.name = name
        self.ready: Mapping[str, Any] = {}
        self.restarts = 0
        self._argv = tuple(argv)
        self._env = None if env is None else dict(env)
        self._start_deadline = start_deadline
        self._reply_limit = reply_limit
        self._log = log or logging.getLogger(f"sapo.{name}")
        self._turn = trio.Lock()
        self._child: _Child | None = None
        self._changed = trio.Event()
        self._ended = False
        self._backoff = FIRST_BACKOFF

    async def run(self, task_status: TaskStatus = trio.TASK_STATUS_IGNORED) -> None:
        """Run the child, and replace it if it ends, until cancelled. Reports started when the first child is ready.

        Raises LocalError if a child sends a fatal frame, or if START_ATTEMPTS children die before one has been ready.
        """
        starts = 0
        try:
            while True:
                starts += 1
                if await self._live(task_status, first=not self.ready):
                    starts = 0
                elif not self.ready and starts >= START_ATTEMPTS:
                    raise WorkerFailed(
                        f"the {self.name} process died {starts} times while starting; its own messages say why"
                    )
                self._log.warning("the %s process ended; next start in %.1f s", self.name, self._backoff)
                await trio.sleep(self._backoff)
                self._backoff = min(2 * self._backoff, MAX_BACKOFF)
                self.restarts += 1
        finally:
            self._ended = True
            self._announce(None)

    async def request(self, value: Mapping[str, Any], *, deadline: float) -> Any:
        """Send a request to the child and return its reply. `deadline` counts, in seconds, from this request's turn.

        Raises WorkerFailed if the child dies, is late or is not ready in time, and FrameError if `value` is too large.
        If the request is cancelled midway, the worker kills the child: its late reply would answer the next request.
        """
        async with self._turn:
            with trio.move_on_after(deadline):
                child = await self._wait_for_child()
                return await self._ask(child, value)
            raise WorkerFailed(f"the {self.name} process did not answer within {deadline:g} s")

    async def _wait_for_child(self) -> _Child:
        while self._child is None:
            if self._ended:
                raise WorkerFailed(f"the {self.name} process is stopped")
            await self._changed.wait()
        return self._child

    async def _ask(self, child: _Child, value: Mapping[str, Any]) -> Any:
        child.asked = True
        answered = False
        try:
            await send_frame(child.process.stdin, value)
            reply = await child.received.receive()
            answered = True
        except FrameError:
            # The frame was refused before its first byte, so the child has not seen the request.
            child.asked, answered = False, True
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.EndOfChannel) as error:
            raise WorkerFailed(f"the {self.name} process died while it worked on a request") from error
        finally:
            if not answered:
                self._discard(child)
        self._backoff = FIRST_BACKOFF
        return reply

    async def _live(self, task_status: TaskStatus, *, first: bool) -> bool:
        """Run one child from start to reaping. Returns whether it became ready. Raises LocalError for a fatal frame."""
        child = self._start()
        fatal: LocalError | None = None
        became_ready = False
        async with trio.open_nursery() as nursery:
            assert child.process.stderr is not None
            nursery.start_soon(listen, child.process.stderr, partial(self._log.warning, "%s"))
            try:
                became_ready = await self._play(child, task_status, first=first)
            except LocalError as error:
                fatal = error  # raised outside the nursery, which would wrap it
            # What the child wrote last is still to be read. Its own children may hold stderr open for longer.
            nursery.cancel_scope.deadline = trio.current_time() + _LAST_WORDS
        if fatal:
            raise fatal
        return became_ready

    async def _play(self, child: _Child, task_status: TaskStatus, *, first: bool) -> bool:
        """Let a child answer until it ends, and reap it. Returns and raises as `_live` does."""
        became_ready = False
        gracefully = True
        try:
            with trio.move_on_after(self._start_deadline):
                self.ready = await self._receive_ready(child)
                became_ready = True
                self._announce(child)
                if first:
                    task_status.started()
            if became_ready:
                await self._serve(child)
            gracefully = False
        except FrameError as error:
            gracefully = False
            self._log.warning("the %s process sent an invalid frame: %s", self.name, error)
        except WorkerFailed as error:
            gracefully = False
            self._log.warning("%s", error)
        finally:
            if self._child is child:
                self._announce(None)
            child.replies.close()
            with trio.CancelScope(shield=True):
                await child.process.end(grace=STOP_GRACE if gracefully else 0.0)
        return became_ready

    def _start(self) -> _Child:
        replies, received = trio.open_memory_channel[Any](1)
        return _Child(ChildProcess(self._argv, env=self._env, capture_stderr=True), replies, received)

    async def _receive_ready(self, child: _Child) -> Mapping[str, Any]:
        frame = await receive_frame(child.process.stdout, self._reply_limit)
        if frame is None:
            raise WorkerFailed(f"the {self.name} process ended before it was ready")
        if isinstance(frame, dict) and isinstance(frame.get("fatal"), str):
            raise LocalError(frame["fatal"])
        if not isinstance(frame, dict) or not isinstance(frame.get("ready"), dict):
            raise FrameError("its first frame is neither ready nor fatal")
        ready: dict[str, Any] = frame["ready"]
        return ready

    async def _serve(self, child: _Child) -> None:
        """Pass replies on until the child ends or is discarded."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, child)
            await child.discarded.wait()
            nursery.cancel_scope.cancel()

    async def _pump(self, child: _Child) -> None:
        try:
            while (frame := await receive_frame(child.process.stdout, self._reply_limit)) is not None:
                if not child.asked:
                    self._log.warning("the %s process sent a reply without a request", self.name)
                    return
                child.asked = False
                child.replies.send_nowait(frame)
        except (FrameError, trio.BrokenResourceError) as error:
            self._log.warning("the %s process sent an invalid frame: %s", self.name, error)
        finally:
            self._discard(child)

    def _discard(self, child: _Child) -> None:
        """Let no request use this child any more. `run` then kills and replaces it."""
        if self._child is child:
            self._announce(None)
        child.replies.close()
        child.discarded.set()

    def _announce(self, child: _Child | None) -> None:
        self._child = child
        self._changed.set()
        self._changed = trio.Event()
