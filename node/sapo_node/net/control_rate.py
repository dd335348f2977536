"""How many control messages a peer may send per second."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

ALLOWED = {"ihave": 10, "offered": 512, "iwant": 10, "wanted": 64, "graft": 20, "prune": 20, "idontwant": 0, "rpc": 32}
"""What one peer may send per second: control messages, ids in them, and RPCs without a message. An honest router sends
one or two of each per heartbeat. IDONTWANT belongs to a gossipsub version that this node does not speak."""
BURST_SECONDS = 10.0  # of ALLOWED may come at once: if this node did not read for so long, as many are waiting


@dataclass(slots=True)
class Spent:
    """How much of ALLOWED a peer has used."""

    time: float
    levels: dict[str, float] = field(default_factory=dict)

    def add(self, now: float, counts: Collection[tuple[str, int]]) -> int:
        """Count one RPC. Returns how many of its parts were above the limit."""
        passed, self.time = now - self.time, now
        excess = 0.0
        for kind, count in counts:
            level = max(0.0, self.levels.get(kind, 0.0) - ALLOWED[kind] * passed) + count
            self.levels[kind] = min(level, ALLOWED[kind] * BURST_SECONDS)
            excess += level - self.levels[kind]
        return round(excess)


def counts_of(rpc: Any) -> tuple[tuple[str, int], ...]:
    """The counted parts of an RPC, by their names in ALLOWED."""
    control = rpc.control
    return (
        ("ihave", len(control.ihave)),
        ("offered", sum(len(each.messageIDs) for each in control.ihave)),
        ("iwant", len(control.iwant)),
        ("wanted", sum(len(each.messageIDs) for each in control.iwant)),
        ("graft", len(control.graft)),
        ("prune", len(control.prune)),
        ("idontwant", len(control.idontwant)),
        ("rpc", not rpc.publish),
    )
