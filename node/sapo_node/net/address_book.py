"""The peers that a node knows: the address book in memory, and the part of it that outlives a restart.

The book holds at most BOOK peers, where they listen, and how dialling them went. Each entry stands in the bucket of its
source: the network of the peer that named it, or its own network if it dialled this node and answered a feeler. At most
BUCKET entries of one bucket are not connected. A new entry takes a place in its own bucket, or, if the book is full, in
the largest bucket. So an attacker who names thousands of peers displaces the peers of its own network only. Bitcoin
Core has the same rule. The book drops no bootstrap peer and no anchor.

A peer that another peer named (peer exchange) is dialled once. If three peers that a peer named cannot be dialled, the
node ignores that peer as a source for IGNORED_SOURCE_SECONDS. The pause ends, because honest peers name such peers too.

After a restart a node knows only the peers that its operator named, and an attacker may offer it all others. So it
first dials its anchors: peers that it dialled before and that brought it messages. A peer that only dialled this node
cannot become an anchor, because strangers would then choose the anchors. Bitcoin Core has the same rule. If bootstrap
peers and anchors are gone, the node finds the swarm through the known peers: those of the book that answered a dial,
each at the address that answered, in the buckets that they were in.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import trio

from sapo_node.net.addresses import network_of
from sapo_node.net.interface import KnownPeer, PeerInfo
from sapo_node.net.settings import NetworkDefences
from sapo_node.processes.bounded import Bounded
from sapo_node.storage.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS anchors (place INTEGER PRIMARY KEY, address TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS known_peers (
    place INTEGER PRIMARY KEY, address TEXT NOT NULL, source TEXT NOT NULL, inbound INTEGER NOT NULL
) STRICT;
"""

KEPT = 4  # anchors
PER_NETWORK = 2  # anchors in one network
KNOWN_PER_NETWORK = 16
"""Most known peers in one network, so that its owner cannot fill the book with keys."""

BOOK = 256  # peers
BUCKET = 16  # peers of one source, beside those that are connected
ADDRESSES = 8  # of one peer
IGNORED_SOURCE_SECONDS = 600.0
NAMERS = 1024  # peers whose failed names are counted


@dataclass(slots=True)
class Wanted:
    """One entry of the book."""

    peer_id: str
    bootstrap: bool = False
    anchor: bool = False
    """True if it served us well before the last restart."""
    by: str = ""
    """The peer that named it. Empty if no peer did, and after the first connection."""
    source: str = ""
    """The bucket: the network of the peer that named it, or its own. Empty for what the operator named."""
    inbound: bool = False
    """True if nobody named it: it dialled us, and answered a feeler."""
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

    @property
    def kept(self) -> bool:
        """True if the book never drops it, and the node dials it however many connections there are."""
        return self.bootstrap or self.anchor


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

    def want(self, new: Wanted, addresses: Sequence[str]) -> bool:
        """Add a peer, or new addresses of a known one. If a peer named it (`by`), the addresses of a known peer do not
        change. False if nothing changed.
        """
        entry = self._entries.get(new.peer_id)
        if new.by and entry is not None:
            entry.sought = True
            return True
        if new.by and not self._accepts_names_of(new.by):
            return False
        if entry is None:
            if not (new.kept or self._make_room(new.source)):
                return False
            entry = self._entries[new.peer_id] = new
            entry.linked, entry.sought = new.peer_id in self._connected(), bool(new.by)
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

    def _make_room(self, source: str) -> bool:
        """If the bucket of the source is full, drop an entry of it; if the book is full, one of the largest bucket. The
        entry is one that never answered, or else the one that failed most often. False if none can be dropped.
        """
        here = self._connected()
        rest = [each for each in self if not (each.kept or each.dialling) and each.peer_id not in here]
        sizes = Counter(each.source for each in rest)
        if sizes[source] < BUCKET:
            if len(self._entries) < BOOK:
                return True
            source = max(sizes, key=lambda each: sizes[each], default=source)
        bucket = [each for each in rest if each.source == source]
        if not bucket:
            return False
        dropped = max(bucket, key=lambda entry: (not entry.answered, entry.failures, self._rng.random()))
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
        known = (KnownPeer(address) for address in (*present, *self.addresses))
        kept = tuple(each.address for each in _spread(known, KEPT, PER_NETWORK))
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
    def peers(self) -> tuple[KnownPeer, ...]:
        """The stored peers."""
        rows = self._database.rows("SELECT address, source, inbound FROM known_peers ORDER BY place")
        return tuple(KnownPeer(address, source, bool(inbound)) for address, source, inbound in rows)

    def note(self, answered: Iterable[KnownPeer]) -> None:
        """Store the peers that answered. Earlier ones take the places that are left: this node may be offline."""
        known = self.peers
        kept = _spread([*answered, *known], BOOK, KNOWN_PER_NETWORK)
        if set(kept) != set(known):
            with self._database.transaction():
                self._database.execute("DELETE FROM known_peers")
                for place, each in enumerate(kept):
                    self._database.execute(
                        "INSERT INTO known_peers VALUES (?, ?, ?, ?)", place, each.address, each.source, each.inbound
                    )


def _spread(known: Iterable[KnownPeer], most: int, per_network: int) -> tuple[KnownPeer, ...]:
    """The first `most` different peers, with at most `per_network` in one network and BUCKET of one source."""
    kept: dict[str, KnownPeer] = {}
    near: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for each in known:
        peer_id, network = each.address.rpartition("/")[2], network_of(each.address)
        room = near[network] < per_network and (not each.source or named[each.source] < BUCKET)
        if peer_id not in kept and len(kept) < most and room:
            kept[peer_id] = each
            near[network] += 1
            named[each.source] += 1
    return tuple(kept.values())
