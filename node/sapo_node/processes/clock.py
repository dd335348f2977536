"""Where the time of day comes from, so that epochs can be driven by hand."""

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
    """Unix time counted by trio's clock from a chosen start: virtual wherever trio's clock is."""

    start: float

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self.start + trio.current_time()
