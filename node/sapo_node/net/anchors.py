"""Anchors: useful peers that a node remembers across restarts.

After a restart, a node knows only the peers that its operator named, and an attacker may offer it all others. So it
first dials its anchors: peers that it dialled before and that brought it messages. A peer that only dialled this node
cannot become an anchor, because strangers would then choose the anchors. Bitcoin Core has the same rule.
"""

from collections.abc import Sequence

from sapo_node.net.addresses import network_of
from sapo_node.net.interface import PeerInfo
from sapo_node.storage.database import Database

SCHEMA = "CREATE TABLE IF NOT EXISTS anchors (place INTEGER PRIMARY KEY, address TEXT NOT NULL) STRICT"

KEPT = 4  # anchors
PER_NETWORK = 2  # anchors in one network


class Anchors:
    """The anchors in the node's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def addresses(self) -> tuple[str, ...]:
        """Full addresses, the best first."""
        return tuple(address for (address,) in self._database.rows("SELECT address FROM anchors ORDER BY place"))

    def note(self, peers: Sequence[PeerInfo]) -> None:
        """Store the useful peers, longest connected first. Earlier anchors take the places that are left."""
        useful = (peer for peer in peers if peer.outbound and peer.brought and peer.addresses)
        present = [
            f"{peer.addresses[0]}/p2p/{peer.peer_id}" for peer in sorted(useful, key=lambda peer: peer.connected_at)
        ]
        kept = _spread([*present, *self.addresses])
        if kept != self.addresses:
            with self._database.transaction():
                self._database.execute("DELETE FROM anchors")
                for place, address in enumerate(kept):
                    self._database.execute("INSERT INTO anchors VALUES (?, ?)", place, address)


def _spread(addresses: Sequence[str]) -> tuple[str, ...]:
    """The first KEPT addresses of different peers, with at most PER_NETWORK in one network."""
    kept: dict[str, str] = {}
    for address in addresses:
        near = sum(network_of(other) == network_of(address) for other in kept.values())
        if len(kept) < KEPT and near < PER_NETWORK:
            kept.setdefault(address.rpartition("/")[2], address)
    return tuple(kept.values())
