"""Sources of time: the machine's clock, and one that a test or a simulation drives."""

import time
from dataclasses import dataclass
from typing import Protocol

import trio


class Clock(Protocol):
    """Tells Unix time, and the time of a clock that nobody sets."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    def steady(self) -> float:
        """Seconds since some moment, the same until the machine restarts. It also counts while the machine sleeps."""
        ...


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux, CLOCK_MONOTONIC stops while the machine sleeps, and CLOCK_BOOTTIME does not."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def steady(self) -> float:
        """Seconds since the machine started."""
        return time.clock_gettime(_STEADY)


@dataclass
class TrioClock:
    """Unix time from a chosen start, counted by trio's clock. It is virtual if trio's clock is virtual."""

    start: float

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self.start + trio.current_time()

    def steady(self) -> float:
        """Seconds of trio's clock."""
        return trio.current_time()
