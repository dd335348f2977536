"""A sandbox that tests share."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import trio

from sapo_node.verification.sandbox.requests import Scored, ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import TaskSpec


class Shared:
    """A sandbox that runs in a thread of its own, for tests of any event loop."""

    def __init__(self, sandbox: Sandbox, token: trio.lowlevel.TrioToken) -> None:
        self._sandbox = sandbox
        self._token = token

    async def score(self, batch: Sequence[ScoreRequest]) -> list[Scored | None]:
        return await trio.to_thread.run_sync(
            lambda: trio.from_thread.run(self._sandbox.score, batch, trio_token=self._token)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)


@contextmanager
def running_sandbox(tasks: Iterable[TaskSpec]) -> Iterator[Shared]:
    """Run a sandbox for these tasks in a thread until the block ends."""
    started: list[Shared] = []
    ready, scope = Event(), trio.CancelScope()

    async def run() -> None:
        sandbox = Sandbox(tasks)
        with scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(sandbox.run)
                started.append(Shared(sandbox, trio.lowlevel.current_trio_token()))
                ready.set()
                await trio.sleep_forever()

    thread = Thread(target=trio.run, args=(run,))
    thread.start()
    assert ready.wait(120)
    yield started[0]
    started[0]._token.run_sync_soon(scope.cancel)
    thread.join()
