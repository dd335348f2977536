"""Sources of Unix time: the machine's clock, and one that a test or a simulation drives."""

import time
from dataclasses import dataclass
from typing import Protocol

import trio


class Clock(Protocol):
    """Tells Unix time."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()


@dataclass
class TrioClock:
    """Unix time from a chosen start, counted by trio's clock. It is virtual if trio's clock is virtual."""

    start: float

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self.start + trio.current_time()
