"""Runs the network service, and restarts it after any error, until it is stopped."""

import logging
import random
from collections.abc import Awaitable, Callable

import trio

from sapo_node.net.interface import Notify, ServiceRestarted

log = logging.getLogger(__name__)

FIRST_RESTART, LONGEST_RESTART = 0.2, 30.0  # seconds
STEADY_SECONDS = 60.0  # after a session of this length the back-off begins at FIRST_RESTART again
STOP_SECONDS = 4.0


async def supervise(
    session: Callable[[Callable[[], None]], Awaitable[None]],
    stop: trio.Event,
    *,
    started: Callable[[], None],
    notify: Notify,
) -> None:
    """Run `session(ready)` until `stop` is set, with a back-off after each session that failed.

    `started` is called once, when the first session is ready. Each restart is reported to `notify`.
    """
    delay = FIRST_RESTART
    is_started = False

    def ready() -> None:
        nonlocal is_started
        if not is_started:
            is_started = True
            started()

    while not stop.is_set():
        since = trio.current_time()
        try:
            await session(ready)
        except Exception as error:
            if stop.is_set():
                log.debug("the network service ended with %r", error)
                return
            if trio.current_time() - since > STEADY_SECONDS:
                delay = FIRST_RESTART
            log.debug("the network service failed", exc_info=error)
            notify(ServiceRestarted(first_cause(error), delay))
            with trio.move_on_after(delay):
                await stop.wait()
            delay = min(delay * random.uniform(1.5, 2.5), LONGEST_RESTART)  # noqa: S311 - jitter


async def set_when_cancelled(stop: trio.Event) -> None:
    """Set `stop` when the task is cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        stop.set()


async def cancel_late(stop: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel `scope` STOP_SECONDS after `stop` is set, because the library may hang while it closes."""
    await stop.wait()
    await trio.sleep(STOP_SECONDS)
    scope.cancel()


def first_cause(error: BaseException) -> str:
    """One line about the first exception in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
