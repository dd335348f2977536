"""The peers that a node knows: the address book in memory, and the part of it that outlives a restart.

The book holds at most BOOK peers, where they listen, and how dialling them went. A full book drops a peer that the node
never dialled with success before one that it did. It drops no bootstrap peer and no anchor. A crowd of strangers that
dial the node enters the book as well.

A peer that another peer named (peer exchange) is dialled once. If three peers that a peer named cannot be dialled, the
node ignores that peer as a source for IGNORED_SOURCE_SECONDS. The pause ends, because honest peers name such peers too.

After a restart a node knows only the peers that its operator named, and an attacker may offer it all others. So it
first dials its anchors: peers that it dialled before and that brought it messages. A peer that only dialled this node
cannot become an anchor, because strangers would then choose the anchors. Bitcoin Core has the same rule. If bootstrap
peers and anchors are gone, the node finds the swarm through the known peers: those of the book that answered a dial,
each at the address that answered.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import trio

from sapo_node.net.addresses import network_of
from sapo_node.net.interface import PeerInfo
from sapo_node.net.settings import NetworkDefences
from sapo_node.processes.bounded import Bounded
from sapo_node.storage.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS anchors (place INTEGER PRIMARY KEY, address TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS known_peers (place INTEGER PRIMARY KEY, address TEXT NOT NULL) STRICT;
"""

KEPT = 4  # anchors
PER_NETWORK = 2  # anchors in one network
KNOWN = 256  # peers of the address book
KNOWN_PER_NETWORK = 16
"""Most known peers in one network, so that its owner cannot fill the book with keys."""

BOOK = 256  # peers
ADDRESSES = 8  # of one peer
IGNORED_SOURCE_SECONDS = 600.0
NAMERS = 1024  # peers whose failed names are counted


@dataclass(slots=True)
class Wanted:
    """One entry of the book."""

    peer_id: str
    bootstrap: bool
    anchor: bool = False
    """True if it served us well before the last restart."""
    by: str = ""
    """The peer that named it. Empty if no peer did, and after the first connection."""
    addresses: tuple[str, ...] = ()
    networks: frozenset[str] = field(default=frozenset(), init=False)
    """The networks of its addresses. Kept, because the loop compares them each time it looks at the book."""
    failures: int = 0
    due: float = 0.0
    dialling: bool = False
    reported: set[str] = field(default_factory=set)
    """The causes for which it was reported as unreachable. Empty if it is reachable."""
    ours: bool = False
    """True if we dialled it when it last connected."""
    answered: str = ""
    """The address at which it last answered us. Empty if it never did."""
    proven: bool = False
    """True if we ever connected to it by a dial. A peer that dialled us and whose address we checked is not proven: a
    crowd of strangers may answer too."""
    linked: bool = False
    """True if it was connected when the loop last looked."""
    sought: bool = False
    """True if a peer named it since our topics last changed."""

    def learn(self, addresses: Sequence[str]) -> None:
        """Put new addresses before the known ones. The operator's address of a bootstrap peer stays first."""
        old, new = self.addresses, tuple(addresses)
        merged = (*old, *new) if self.bootstrap else (*new, *old)
        known = tuple(dict.fromkeys(merged))[:ADDRESSES]
        if known != old:
            self.addresses = known
            self.networks = frozenset(map(network_of, known))


class AddressBook:
    """The entries by peer id, in the order in which they came."""

    def __init__(self, connected: Callable[[], frozenset[str]], defences: NetworkDefences, rng: random.Random) -> None:
        self._connected = connected
        self._defences = defences
        self._rng = rng
        self._entries: dict[str, Wanted] = {}
        self._wrong: Bounded[str, tuple[int, float]] = Bounded(NAMERS)
        """By peer: how many peers that it named could not be dialled, and until when that counts."""

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self._entries.values())

    def get(self, peer_id: str) -> Wanted | None:
        return self._entries.get(peer_id)

    def want(self, peer_id: str, addresses: Sequence[str], *, bootstrap: bool, anchor: bool, by: str) -> bool:
        """Add a peer, or new addresses of a known one. If a peer named it (`by`), the addresses of a known peer do not
        change. False if nothing changed.
        """
        entry = self._entries.get(peer_id)
        if by and entry is not None:
            entry.sought = True
            return True
        if by and not self._accepts_names_of(by):
            return False
        if entry is None:
            if not self._make_room():
                return False
            linked = peer_id in self._connected()
            entry = Wanted(peer_id, bootstrap, anchor, by, linked=linked, sought=bool(by))
            self._entries[peer_id] = entry
        entry.learn(addresses)
        return True

    def drop(self, peer_id: str) -> None:
        self._entries.pop(peer_id, None)

    def was_wrong(self, by: str) -> None:
        """A peer that `by` named could not be dialled."""
        self._wrong[by] = (self._wrong_of(by) + 1, trio.current_time() + IGNORED_SOURCE_SECONDS)

    def _accepts_names_of(self, by: str) -> bool:
        named = sum(entry.by == by for entry in self)
        return self._wrong_of(by) < self._defences.wrong and named < self._defences.named

    def _wrong_of(self, by: str) -> int:
        count, until = self._wrong.get(by, (0, 0.0))
        return count if trio.current_time() < until else 0

    def _make_room(self) -> bool:
        """If the book is full, drop an entry that we never reached, or else the one that failed most often. False if
        none can be dropped.
        """
        if len(self._entries) < BOOK:
            return True
        here = self._connected()
        rest = [
            entry
            for entry in self
            if not (entry.bootstrap or entry.anchor or entry.dialling) and entry.peer_id not in here
        ]
        if not rest:
            return False
        dropped = max(rest, key=lambda entry: (not entry.proven, entry.failures, self._rng.random()))
        del self._entries[dropped.peer_id]
        return True


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
