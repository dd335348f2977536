"""The rate of new connections that a node takes from each address block.

Before there is a connection, the address block of the peer stands for the link.
"""

from sapo_node.net.addresses import block_of
from sapo_node.processes.bounded import Bounded
from sapo_node.processes.link_budget import LinkBudget

CONNECTION_RATE, CONNECTION_BURST = 1.0, 64.0
"""Connections per second, and at once, from one address block. A site with fifty nodes can start them together."""
ALL_CONNECTIONS_RATE, ALL_CONNECTIONS_BURST = 8.0, 128.0
"""The same for all blocks from which no peer brought a message."""
REMEMBERED_BLOCKS = 1_024
"""Blocks whose peers brought messages; the node forgets the one that it used longest ago."""


class ConnectionRate:
    """Decides which new connections a node takes, before their handshakes.

    A handshake costs the node at least 2 ms of CPU, and its peer a quarter of that. So each address block has a rate,
    as in go-libp2p. All blocks together have a rate too, because an attacker may have many. Blocks of peers that
    brought accepted messages are free of the common rate, so that strangers who use it up do not lock them out.
    """

    def __init__(self) -> None:
        self._unknown = LinkBudget(
            rate=CONNECTION_RATE, burst=CONNECTION_BURST, for_all=(ALL_CONNECTIONS_RATE, ALL_CONNECTIONS_BURST)
        )
        self._useful = LinkBudget(rate=CONNECTION_RATE, burst=CONNECTION_BURST)
        self._useful_blocks: Bounded[str, None] = Bounded(REMEMBERED_BLOCKS)

    def admits(self, address: str, now: float) -> bool:
        """Return whether to take a connection from an IP address at `now` (seconds). If so, it counts."""
        block = block_of(address)
        return (self._useful if block in self._useful_blocks else self._unknown).take(block, now)

    def remember(self, address: str) -> None:
        """A peer at this IP address brought messages that were accepted."""
        self._useful_blocks[block_of(address)] = None
