"""How many control messages a peer may send per second."""

from typing import Any

from sapo_node.net.link_budget import LinkBudget
from sapo_protocol.limits import MAX_SHARDS

TOPICS = MAX_SHARDS + 8
"""Above the topics of any swarm: its shards, and that of evidence."""
ALLOWED = {
    "ihave": TOPICS,
    "offered": 512,
    "iwant": TOPICS,
    "wanted": 64,
    "graft": TOPICS,
    "prune": TOPICS,
    "idontwant": 0,
    "rpc": TOPICS,
}
"""What one peer may send per second: control messages, ids in them, and RPCs without a message. In one heartbeat an
honest router sends one IHAVE, GRAFT or PRUNE for each topic in one RPC, and one IWANT for each topic in an RPC of its
own. IDONTWANT belongs to a gossipsub version that this node does not speak."""
BURST_SECONDS = 10.0  # of ALLOWED may come at once: if this node did not read for so long, as many are waiting


class ControlBudget:
    """How much of ALLOWED each peer has left."""

    def __init__(self) -> None:
        self._budgets = {kind: LinkBudget(rate=rate, burst=rate * BURST_SECONDS) for kind, rate in ALLOWED.items()}

    def excess(self, peer: str, now: float, rpc: Any) -> int:
        """Charge one RPC to a peer. Returns how many of its parts were above the limit."""
        counts = counts_of(rpc)
        return round(sum(self._budgets[kind].take_rest(peer, now, count) for kind, count in counts))


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
