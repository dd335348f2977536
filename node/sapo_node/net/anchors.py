"""The peers that a node remembers across restarts: anchors, and peers of its address book.

After a restart, a node knows only the peers that its operator named, and an attacker may offer it all others. So it
first dials its anchors: peers that it dialled before and that brought it messages. A peer that only dialled this node
cannot become an anchor, because strangers would then choose the anchors. Bitcoin Core has the same rule.

If bootstrap peers and anchors are gone, the node finds the swarm through the other peers of its address book that
answered a dial, each at the address that answered.
"""

from collections import Counter
from collections.abc import Sequence

from sapo_node.net.addresses import network_of
from sapo_node.net.interface import PeerInfo
from sapo_node.storage.database import Database

SCHEMA = "CREATE TABLE IF NOT EXISTS anchors (place INTEGER PRIMARY KEY, address TEXT NOT NULL) STRICT"

KNOWN_SCHEMA = "CREATE TABLE IF NOT EXISTS known_peers (place INTEGER PRIMARY KEY, address TEXT NOT NULL) STRICT"

KEPT = 4  # anchors
PER_NETWORK = 2  # anchors in one network
KNOWN = 256  # peers of the address book
KNOWN_PER_NETWORK = 16
"""Most known peers in one network, so that its owner cannot fill the book with keys."""


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
        kept = _spread([*present, *self.addresses], KEPT, PER_NETWORK)
        if kept != self.addresses:
            with self._database.transaction():
                self._database.execute("DELETE FROM anchors")
                for place, address in enumerate(kept):
                    self._database.execute("INSERT INTO anchors VALUES (?, ?)", place, address)


class KnownPeers:
    """The address book in the node's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def addresses(self) -> tuple[str, ...]:
        """Full addresses."""
        return tuple(address for (address,) in self._database.rows("SELECT address FROM known_peers ORDER BY place"))

    def note(self, answered: Sequence[str]) -> None:
        """Store the addresses that answered. Earlier ones take the places that are left: this node may be offline."""
        known = self.addresses
        kept = _spread([*answered, *known], KNOWN, KNOWN_PER_NETWORK)
        if set(kept) != set(known):
            with self._database.transaction():
                self._database.execute("DELETE FROM known_peers")
                for place, address in enumerate(kept):
                    self._database.execute("INSERT INTO known_peers VALUES (?, ?)", place, address)


def _spread(addresses: Sequence[str], most: int, per_network: int) -> tuple[str, ...]:
    """The first `most` addresses of different peers, with at most `per_network` in one network."""
    kept: dict[str, str] = {}
    near: Counter[str] = Counter()
    for address in addresses:
        peer_id, network = address.rpartition("/")[2], network_of(address)
        if peer_id not in kept and len(kept) < most and near[network] < per_network:
            kept[peer_id] = address
            near[network] += 1
    return tuple(kept.values())
