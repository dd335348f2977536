"""Measures the virtual time of a learner, and the real CPU time that it takes."""

import time
from dataclasses import dataclass, field

GENERATING = 0.6
"""Share of a round's virtual time that generation takes; the update takes the rest."""


@dataclass(slots=True)
class Meter:
    """The tokens and CPU seconds of a node so far."""

    generated_tokens: int = 0
    cpu_seconds: float = 0.0


@dataclass(slots=True)
class Stopwatch:
    """Adds this process's CPU time to a meter while it is entered."""

    meter: Meter
    _since: float = field(default=0.0, init=False)

    def __enter__(self) -> None:
        self._since = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.meter.cpu_seconds += time.process_time() - self._since
