"""How many new connections a node takes per second.

A handshake costs the node 2 ms of CPU, or more, and costs whoever opens it a quarter of that. So a node closes a
connection before its handshake when the address block of the peer is over its rate. go-libp2p limits address prefixes
in the same way.

All blocks together have a rate, too, because an attacker may have many. Peers that brought accepted messages are not
bound by it: else strangers who use it up would keep these peers from coming back.
"""

from sapo_node.net.addresses import block_of
from sapo_node.net.link_budget import LinkBudget
from sapo_node.processes.bounded import Bounded

RATE, BURST = 1.0, 64.0
"""Connections per second, and at once, from one address block. A site with fifty nodes can start them together."""
ALL_RATE, ALL_BURST = 8.0, 128.0
"""The same for all blocks from which no peer brought a message."""
REMEMBERED = 1_024
"""Blocks whose peers brought messages; the node forgets the one that it used longest ago."""


class ConnectionRate:
    """Which new connections a node takes."""

    def __init__(self) -> None:
        self._unknown = LinkBudget(rate=RATE, burst=BURST, for_all=(ALL_RATE, ALL_BURST))
        self._useful = LinkBudget(rate=RATE, burst=BURST)
        self._useful_blocks: Bounded[str, None] = Bounded(REMEMBERED)

    def admits(self, address: str, now: float) -> bool:
        """Whether to take a connection from an IP address at `now` (seconds); counts it if so."""
        block = block_of(address)
        return (self._useful if block in self._useful_blocks else self._unknown).take(block, now)

    def remember(self, address: str) -> None:
        """A peer at this IP address brought messages that were accepted."""
        self._useful_blocks[block_of(address)] = None
