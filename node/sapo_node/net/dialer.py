"""The address book, and the loop that dials its peers again and again, which py-libp2p does not do.

- The node always dials bootstrap peers. It dials anchors until GIVE_UP attempts in a row fail.
- It dials other known peers while it has dialled fewer than ENOUGH connections, and fewer than PER_NETWORK into the
  network of the peer. So one network with many addresses cannot take all connections that the node dials.
- It dials a peer that another peer named (peer exchange) once. If three peers that a peer named cannot be dialled, the
  node ignores that peer as a source for UNHEEDED_SECONDS. The pause ends, because honest peers name such peers too.
- While too few connected peers follow the node's topics, it dials up to MOST connections.

The address book holds at most BOOK peers. A full book drops a peer that the node never dialled with success before one
that it did, and a bootstrap peer or an anchor never: a crowd of strangers that dial the node enters the book as well.
"""

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from sapo_node.net.addresses import network_of
from sapo_node.net.defences import NETWORK_DEFENDED, NetworkDefences
from sapo_node.net.interface import Admit, BootstrapReached, BootstrapUnreachable, Notify

BOOK = 256  # peers
ADDRESSES = 8  # of one peer
ENOUGH = 8  # connections that we dialled; from then on only bootstrap peers and anchors are dialled
MOST = 32  # the same limit, while too few connected peers follow our topics
PER_NETWORK = 4  # connections into one network; from then on only bootstrap peers and anchors in it are dialled
AT_ONCE = 8  # peers that are dialled at one time
DIAL_SECONDS = 10.0  # for one address
FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0  # seconds
GIVE_UP = 12  # failures in a row, about six minutes
UNHEEDED_SECONDS = 600.0
NAMERS = 1024  # peers whose failed names are counted
LOOK_AGAIN_SECONDS = 5.0  # a connection may end without a notice

Dial = Callable[[str, str], Awaitable[None]]
"""`dial(peer id, address)`: returns when connected. Any error that it raises counts as a failure."""


@dataclass(slots=True)
class Wanted:
    """One entry of the book."""

    peer_id: str
    addresses: tuple[str, ...]
    bootstrap: bool
    anchor: bool = False
    """Whether it served us well before the last restart."""
    by: str = ""
    """The peer that named it. Empty if no peer did, and after the first connection."""
    failures: int = 0
    due: float = 0.0
    dialling: bool = False
    reported: bool = False
    """Whether it was reported as unreachable and not yet as reachable again."""
    ours: bool = False
    """Whether we dialled it when it last connected."""
    proven: bool = False
    """Whether we ever dialled it with success."""
    linked: bool = False
    """Whether it was connected when the loop last looked."""
    sought: bool = False
    """Whether a peer named it since our topics last changed."""

    @property
    def networks(self) -> frozenset[str]:
        """The networks of its addresses."""
        return frozenset(map(network_of, self.addresses))


class Dialer:
    """The address book and its loop. `run` may be cancelled and run again; the book stays."""

    def __init__(
        self,
        dial: Dial,
        connected: Callable[[], frozenset[str]],
        *,
        below_target: Callable[[], bool],
        admit: Admit,
        notify: Notify,
        defences: NetworkDefences = NETWORK_DEFENDED,
    ) -> None:
        """`below_target()`: whether a topic that we follow has too few connected peers."""
        self._dial = dial
        self._below_target = below_target
        self._connected = connected
        self._admit = admit
        self._notify = notify
        self._defences = defences
        self._book: dict[str, Wanted] = {}
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """By peer: how many peers that it named could not be dialled, and until when that counts."""
        self._news = trio.Event()
        self._rng = random.Random()  # noqa: S311 - jitter

    def want(
        self, peer_id: str, addresses: Sequence[str], *, bootstrap: bool = False, anchor: bool = False, by: str = ""
    ) -> None:
        """Add a peer, or put new addresses before the known ones. `by` is the peer that named it, if a peer did: then
        the addresses of a known peer do not change.
        """
        if not self._admit(peer_id):
            return
        entry = self._book.get(peer_id)
        if by and entry is not None:
            entry.sought = True
            self.wake()
            return
        if by and not self._heeds(by):
            return
        if entry is None:
            if not self._make_room():
                return
            entry = self._book[peer_id] = Wanted(
                peer_id, (), bootstrap, anchor, by, linked=peer_id in self._connected(), sought=bool(by)
            )
        # The operator's address of a bootstrap peer stays first.
        old, new = entry.addresses, tuple(addresses)
        merged = (*old, *new) if entry.bootstrap else (*new, *old)
        entry.addresses = tuple(dict.fromkeys(merged))[:ADDRESSES]
        self.wake()

    def _heeds(self, by: str) -> bool:
        named = sum(entry.by == by for entry in self._book.values())
        return self._wrong_of(by) < self._defences.wrong and named < self._defences.named

    def _wrong_of(self, by: str) -> int:
        count, until = self._wrong.get(by, (0, 0.0))
        return count if trio.current_time() < until else 0

    def _was_wrong(self, by: str) -> None:
        self._wrong[by] = (self._wrong_of(by) + 1, trio.current_time() + UNHEEDED_SECONDS)
        self._wrong.move_to_end(by)
        if len(self._wrong) > NAMERS:
            self._wrong.popitem(last=False)

    def lost(self, peer_id: str) -> None:
        """A connection ended: dial again after a short, random delay."""
        if entry := self._book.get(peer_id):
            self._put_off(entry)
        self.wake()

    def forget(self, peer_id: str) -> None:
        """Remove a peer from the book, unless it is a bootstrap peer."""
        entry = self._book.get(peer_id)
        if entry is not None and not entry.bootstrap:
            del self._book[peer_id]

    def wake(self) -> None:
        self._news.set()

    def wanted(self) -> tuple[str, ...]:
        return tuple(self._book)

    async def run(self) -> None:
        for entry in self._book.values():
            entry.dialling, entry.linked, entry.due = False, False, 0.0  # state of an earlier run
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                wake_at = trio.current_time() + LOOK_AGAIN_SECONDS
                for entry in self._candidates():
                    if entry.due > trio.current_time():
                        wake_at = min(wake_at, entry.due)
                    elif self._has_room(entry):
                        entry.dialling = True
                        nursery.start_soon(self._attempt, entry)
                with trio.move_on_at(wake_at):
                    await self._news.wait()

    def _candidates(self) -> list[Wanted]:
        here = self._connected()
        for entry in self._book.values():
            if entry.peer_id in here:
                self._reached(entry)  # it may have dialled us
            elif entry.linked:
                self._put_off(entry)  # it is disconnecting, which takes a while
        # Inbound peers do not count: else a crowd of strangers could keep us from dialling the peers that we chose.
        dialled = len(self._dialled(here))
        enough = dialled >= ENOUGH
        seeking = enough and dialled < MOST and self._below_target()
        return [
            entry
            for entry in self._book.values()
            if entry.peer_id not in here
            and not entry.dialling
            and (entry.bootstrap or entry.anchor or not enough or (seeking and entry.sought))
            and self._admit(entry.peer_id)
        ]

    def _dialled(self, here: frozenset[str]) -> list[Wanted]:
        return [entry for entry in self._book.values() if entry.ours and entry.peer_id in here]

    def seek_anew(self, useful: Callable[[str], bool]) -> list[str]:
        """After our topics changed, forget which peers were named for the old topics.

        Returns the peers to disconnect: of the dialled peers above ENOUGH, the ones that are not `useful` for the new
        topics.
        """
        for entry in self._book.values():
            entry.sought = False
        self.wake()
        dialled = self._dialled(self._connected())
        idle = [each for each in dialled if not (each.bootstrap or each.anchor or useful(each.peer_id))]
        return [each.peer_id for each in idle[: max(0, len(dialled) - ENOUGH)]]

    def _has_room(self, entry: Wanted) -> bool:
        """Whether a peer may be dialled now, by AT_ONCE and PER_NETWORK."""
        if sum(other.dialling for other in self._book.values()) >= AT_ONCE:
            return False
        if entry.bootstrap or entry.anchor:
            return True
        here = self._connected()
        near = (other for other in self._book.values() if other.networks & entry.networks)
        return sum(other.dialling or other.peer_id in here for other in near) < PER_NETWORK

    async def _attempt(self, entry: Wanted) -> None:
        cause = "no address is known"
        try:
            for address in entry.addresses:
                try:
                    with trio.fail_after(DIAL_SECONDS):
                        await self._dial(entry.peer_id, address)
                except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a failed dial
                    cause = _short(error)
                else:
                    entry.ours = entry.proven = True
                    entry.due = trio.current_time() + self._delay(0)
                    self._reached(entry)
                    return
        finally:
            entry.dialling = False
            self.wake()
        self._failed(entry, cause)

    def _put_off(self, entry: Wanted) -> None:
        entry.ours = entry.linked = False
        entry.due = trio.current_time() + self._delay(0)

    def _reached(self, entry: Wanted) -> None:
        entry.linked = True
        entry.failures = 0
        entry.by = ""
        if entry.reported:
            entry.reported = False
            self._notify(BootstrapReached(_full(entry)))

    def _failed(self, entry: Wanted, cause: str) -> None:
        if entry.by:
            self._was_wrong(entry.by)
            self._book.pop(entry.peer_id, None)
            return
        entry.failures += 1
        entry.due = trio.current_time() + self._delay(entry.failures)
        if entry.bootstrap and not entry.reported:
            entry.reported = True
            self._notify(BootstrapUnreachable(_full(entry), cause))
        if not entry.bootstrap and entry.failures >= GIVE_UP:
            self._book.pop(entry.peer_id, None)

    def _delay(self, failures: int) -> float:
        longest = min(FIRST_DELAY * 2.0**failures, LONGEST_DELAY)
        return longest * self._rng.uniform(0.5, 1.0)

    def _make_room(self) -> bool:
        """If the book is full, drop an entry that we never reached, or else the one that failed most often. False if
        none can be dropped.
        """
        if len(self._book) < BOOK:
            return True
        here = self._connected()
        rest = [
            entry
            for entry in self._book.values()
            if not (entry.bootstrap or entry.anchor or entry.dialling) and entry.peer_id not in here
        ]
        if not rest:
            return False
        dropped = max(rest, key=lambda entry: (not entry.proven, entry.failures, self._rng.random()))
        del self._book[dropped.peer_id]
        return True


def _full(entry: Wanted) -> str:
    return f"{entry.addresses[0]}/p2p/{entry.peer_id}"


def _short(error: Exception) -> str:
    """One line about the innermost cause in a chain of the library's exceptions."""
    innermost: BaseException = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    if isinstance(innermost, trio.TooSlowError):
        return f"no answer within {DIAL_SECONDS:.0f} s"
    if isinstance(innermost, OSError) and innermost.strerror:
        return innermost.strerror
    return (str(innermost) or type(innermost).__name__).splitlines()[0][:160]
