"""The rates of what a peer may send: control messages, messages with their copies, and subscriptions.

A control message above its rate is an offence. A message above the rate only makes the peer wait, because honest peers
send copies too.
"""

from typing import Any

from sapo_node.processes.link_budget import LinkBudget
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
"""The most of each that a peer may send per second: control messages, ids in them, and RPCs without a message. In one
heartbeat an honest router sends one IHAVE, GRAFT or PRUNE for each topic in one RPC, and one IWANT for each topic in an
RPC of its own. IDONTWANT belongs to a gossipsub version that this node does not speak."""
BURST_SECONDS = 10.0  # of ALLOWED may come at once: if this node did not read for so long, as many are waiting
PARTS_PER_SECOND, PARTS_AT_ONCE = 400.0, 2_000.0
"""Messages, copies included, and subscriptions of one peer. The node takes half as many new messages of one."""


class Rates:
    """The budgets of all peers."""

    def __init__(self) -> None:
        self._control = {kind: LinkBudget(rate=rate, burst=rate * BURST_SECONDS) for kind, rate in ALLOWED.items()}
        self._parts = LinkBudget(rate=PARTS_PER_SECOND, burst=PARTS_AT_ONCE)

    def excess(self, peer: str, now: float, rpc: Any) -> int:
        """Charge the control messages of one RPC to a peer. Returns how many were above the rate."""
        return round(sum(self._control[kind].take_rest(peer, now, count) for kind, count in _counts(rpc) if count))

    def debt(self, peer: str, now: float, rpc: Any) -> float:
        """Charge the messages and subscriptions of one RPC to a peer. Returns the seconds for which it has to wait."""
        return self._parts.owe(peer, now, len(rpc.publish) + len(rpc.subscriptions))


def _counts(rpc: Any) -> tuple[tuple[str, int], ...]:
    """The counted parts of an RPC, by their names in ALLOWED."""
    control = rpc.control
    return (
        ("ihave", len(control.ihave)),
        ("offered", sum(len(each.ids) for each in control.ihave)),
        ("iwant", len(control.iwant)),
        ("wanted", sum(len(each.ids) for each in control.iwant)),
        ("graft", len(control.graft)),
        ("prune", len(control.prune)),
        ("idontwant", len(control.idontwant)),
        ("rpc", not rpc.publish),
    )
