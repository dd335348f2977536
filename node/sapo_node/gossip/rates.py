"""The rates of what a peer may send: control messages, messages with their copies, and subscriptions.

A control message above its rate is an offence. A message above the rate only makes the peer wait, because honest peers
send copies too.
"""

from typing import Any

from sapo_node.gossip.rpc import OFFERED_IDS, WANTED_IDS, counts_of
from sapo_node.processes.link_budget import LinkBudget
from sapo_protocol.limits import MAX_SHARDS

TOPICS = MAX_SHARDS + 8
"""Above the topics of any swarm: its shards, and that of evidence."""
ALLOWED = {
    "IHAVE": TOPICS,
    "offered ids": OFFERED_IDS,
    "IWANT": TOPICS,
    "wanted ids": WANTED_IDS,
    "GRAFT": TOPICS,
    "PRUNE": TOPICS,
    "IDONTWANT": 0,
    "RPCs": TOPICS,
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
        counts = counts_of(rpc.control) | {"RPCs": not rpc.publish}
        return round(sum(self._control[kind].take_rest(peer, now, count) for kind, count in counts.items() if count))

    def debt(self, peer: str, now: float, rpc: Any) -> float:
        """Charge the messages and subscriptions of one RPC to a peer. Returns the seconds for which it has to wait."""
        return self._parts.owe(peer, now, len(rpc.publish) + len(rpc.subscriptions))
