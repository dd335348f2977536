"""Measures honest nodes on a real network: which messages arrive and how late, their meshes, and whom they
dial.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import trio

WARM_SECONDS = 8.0
"""After its start a node is owed everything; before, it looks for its peers."""
SETTLE_SECONDS = 15.0
"""Seconds after which a message that has not arrived counts as lost."""


@dataclass(slots=True)
class Seen:
    """The measurements of one honest node."""

    up: list[tuple[float, float]] = field(default_factory=list)
    """From when until when it ran; the last may still run."""
    arrived: dict[bytes, float] = field(default_factory=dict)
    """The arrival time of each message of another node, by content."""
    heartbeats: int = 0
    """While all honest nodes ran."""
    meshed: int = 0
    """Heartbeats at which an honest peer was in its mesh."""
    dark: float = 0.0
    """The longest time, in seconds, without one."""
    lit: float = 0.0
    """The time of the last one."""
    dials: int = 0
    strange_dials: int = 0
    """Dials to addresses without an honest node or an attacker."""
    streams: int = 0
    """The most streams that others than honest nodes held open at one time."""
    stays: Counter[str] = field(default_factory=Counter)
    """The heartbeats at which others than honest nodes were in its mesh, by peer."""
    restarts: int = 0

    @property
    def runs(self) -> bool:
        """True while it runs."""
        return bool(self.up) and self.up[-1][1] == inf

    def covers(self, start: float, end: float) -> bool:
        """Return whether the node ran during the whole time between two moments."""
        return any(since <= start and end <= until for since, until in self.up)


class Watch:
    """The measurements of all honest nodes, and the messages that they sent."""

    def __init__(self, peers: Sequence[str]) -> None:
        self.seen = {peer: Seen() for peer in peers}
        self.published: list[tuple[float, str, bytes]] = []
        """Time, publisher and content id of each message."""
        self.reports: list[Mapping[str, Any]] = []
        """The reports of the attackers' processes."""
        self._began = self._ended = (0.0, 0.0)

    @property
    def complete(self) -> bool:
        """True while all nodes run."""
        return all(each.runs for each in self.seen.values())

    def begin(self) -> None:
        """Start counting."""
        self._began = (trio.current_time(), time.process_time())

    def end(self) -> None:
        """Stop counting."""
        self._ended = (trio.current_time(), time.process_time())

    def record(self) -> dict[str, Any]:
        """The measurements of the whole swarm, at the end."""
        seconds, cpu_seconds = (round(end - begin, 2) for begin, end in zip(self._began, self._ended, strict=True))
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "attackers": self.reports}

    def record_of(self, peer: str) -> dict[str, Any]:
        """The measurements of one node, as plain values."""
        seen = self.seen[peer]
        owed = list(self._owed(to=peer))
        lateness = [seen.arrived[key] - sent for sent, _, key in owed if key in seen.arrived]
        in_time = [late for late in lateness if late <= SETTLE_SECONDS]
        heard = [
            self.seen[other].arrived.get(key, inf) - sent <= SETTLE_SECONDS
            for other in self.seen
            for sent, _, key in self._owed(to=other, by=peer)
        ]
        return {
            "received": {"owed": len(owed), "arrived": len(in_time)},
            "sent": {"owed": len(heard), "arrived": sum(heard)},
            "latencies": [round(late, 3) for late in in_time],
            "heartbeats": seen.heartbeats,
            "meshed": seen.meshed,
            "dark": round(seen.dark, 1),
            "dials": seen.dials,
            "strange_dials": seen.strange_dials,
            "streams": seen.streams,
            "stays": sorted(seen.stays.values()),
            "restarts": seen.restarts,
        }

    def _owed(self, *, to: str, by: str = "") -> list[tuple[float, str, bytes]]:
        """The messages that should reach a node: both ends ran long enough before and after."""
        return [
            (sent, author, key)
            for sent, author, key in self.published
            if author != to
            and by in ("", author)
            and all(self.seen[end].covers(sent - WARM_SECONDS, sent + SETTLE_SECONDS) for end in (author, to))
        ]
