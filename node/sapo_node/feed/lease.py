"""The lease of a feed: one trainer at a time. Another one could send the node back to a step of its own weights.

A trainer names itself, by any text that no other one has. The first takes the lease. Each of its requests renews the
lease for SECONDS. A trainer that was killed sends none, so its lease ends by itself.
"""

from collections.abc import Callable

import trio

from sapo_node.feed.access import MAX_WAIT
from sapo_protocol import LocalError

SECONDS = MAX_WAIT + 10
"""From the last request of a trainer to the end of its lease: longer than a request for work may wait."""


class LeaseHeld(LocalError):
    """Another trainer has the lease."""


class Lease:
    """Which trainer a feed serves."""

    def __init__(self, now: Callable[[], float] = trio.current_time) -> None:
        self._now = now
        self._trainer = ""
        self._asked = 0.0
        """When the trainer sent its last request."""

    def renew(self, trainer: str) -> None:
        """Give the lease to a trainer, or renew it. Raises LeaseHeld where another one has it."""
        ago = self._now() - self._asked
        if self._trainer not in ("", trainer) and ago < SECONDS:
            raise LeaseHeld(
                f"another trainer has this feed, and asked {ago:.0f} s ago: stop it, or start a node of its own for "
                f"each trainer. A trainer that was killed frees the feed {SECONDS:.0f} s after its last request"
            )
        self._trainer, self._asked = trainer, self._now()

    def end(self, trainer: str) -> None:
        """Let the next trainer in, if this one has the lease."""
        if self._trainer == trainer:
            self._trainer = ""
