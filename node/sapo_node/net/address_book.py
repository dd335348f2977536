"""The address book: the peers that the node may dial, where they listen, and how dialling them went.

It holds at most BOOK peers. A full book drops a peer that the node never dialled with success before one that it did,
and a bootstrap peer or an anchor never: a crowd of strangers that dial the node enters the book as well.

A peer that another peer named (peer exchange) is dialled once. If three peers that a peer named cannot be dialled, the
node ignores that peer as a source for IGNORED_SOURCE_SECONDS. The pause ends, because honest peers name such peers too.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import trio

from sapo_node.net.addresses import network_of
from sapo_node.net.settings import NetworkDefences
from sapo_node.processes.bounded import Bounded

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
