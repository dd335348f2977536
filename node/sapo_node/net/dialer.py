"""The loop that dials the peers of the address book again and again, which py-libp2p does not do.

- The node always dials bootstrap peers. It dials anchors until GIVE_UP attempts in a row fail.
- It dials other known peers while it has dialled fewer than ENOUGH connections, and fewer than PER_NETWORK into each
  network of the peer. So one network with many addresses cannot take all connections that the node dials.
- While too few connected peers follow the node's topics, it dials up to MOST connections.

It dials AT_ONCE peers at one time. An attempt at a peer takes at most ATTEMPT_SECONDS, which its addresses share. If
more peers are due than there is room for, bootstrap peers and anchors come first. Then comes the source (a bucket of
the address book) of which fewest peers are connected or dialled. All peers that dialled this node first are one source
here: strangers that dial in must not decide which peers it dials. Within a source the peers draw lots, in which fewer
failures make a better chance. So a crowd that never answers cannot hold all places.
"""

import logging
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import trio

from sapo_node.net.address_book import AddressBook, Wanted
from sapo_node.net.interface import Admit, BootstrapReached, BootstrapUnreachable, KnownPeer, Notify
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences

log = logging.getLogger(__name__)

ENOUGH = 8  # connections that we dialled; from then on only bootstrap peers and anchors are dialled
MOST = 32  # the same limit, while too few connected peers follow our topics
PER_NETWORK = 4  # connections into one network; from then on only bootstrap peers and anchors in it are dialled
AT_ONCE = 8  # peers that are dialled at one time
DIAL_SECONDS = 10.0  # for one address, at most
ATTEMPT_SECONDS = 20.0  # for all addresses of a peer
FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0  # seconds
GIVE_UP = 12  # failures in a row, about six minutes
MOST_CAUSES = 4  # for which an unreachable bootstrap peer is reported, each once, until it is reachable again
LOOK_AGAIN_SECONDS = 5.0  # a connection may end without a notice

Dial = Callable[[str, str], Awaitable[None]]
"""`dial(peer id, address)`: returns when connected. Any error that it raises counts as a failure."""


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
        self._news = trio.Event()
        self._rng = random.Random()  # noqa: S311 - jitter, and the lots
        self._book = AddressBook(connected, defences, self._rng)

    def want(
        self,
        peer_id: str,
        addresses: Sequence[str],
        *,
        bootstrap: bool = False,
        anchor: bool = False,
        by: str = "",
        source: str = "",
    ) -> None:
        """Add a peer, or put new addresses before the known ones. `by` is the peer that named it, if a peer did: then
        the addresses of a known peer do not change. `source` is its bucket.
        """
        self._add(Wanted(peer_id, bootstrap, anchor, by, source), addresses)

    def remember(self, known: KnownPeer) -> None:
        """Add a peer that answered before the restart."""
        address, _, peer_id = known.address.rpartition("/p2p/")
        self._answers(peer_id, address, known.source, inbound=known.inbound)

    def felt(self, peer_id: str, address: str, source: str) -> None:
        """A peer that dialled this node answered a feeler at `address`; empty if it answered at none.

        `source` is the network from which it is connected.
        """
        if address:
            self._answers(peer_id, address, source, inbound=True)
        elif entry := self._book.get(peer_id):
            entry.answered = ""

    def _answers(self, peer_id: str, address: str, source: str, *, inbound: bool) -> None:
        self._add(Wanted(peer_id, source=source, inbound=inbound), [address])
        if entry := self._book.get(peer_id):
            entry.answered = address

    def _add(self, new: Wanted, addresses: Sequence[str]) -> None:
        if self._admit(new.peer_id) and self._book.want(new, addresses):
            self.wake()

    def all_answered(self) -> tuple[KnownPeer, ...]:
        """The peers that answered us."""
        return tuple(
            KnownPeer(f"{entry.answered}/p2p/{entry.peer_id}", entry.source, entry.inbound)
            for entry in self._book
            if entry.answered
        )

    def answered(self, peer_id: str) -> str:
        """The address at which a peer last answered us; empty if it never did."""
        entry = self._book.get(peer_id)
        return entry.answered if entry else ""

    def lost(self, peer_id: str) -> None:
        """A connection ended: dial again after a short, random delay."""
        if entry := self._book.get(peer_id):
            self._put_off(entry)
        self.wake()

    def forget(self, peer_id: str) -> None:
        """Remove a peer from the book, unless it is a bootstrap peer."""
        entry = self._book.get(peer_id)
        if entry is not None and not entry.bootstrap:
            self._book.drop(peer_id)

    def is_bootstrap(self, peer_id: str) -> bool:
        """Return whether the operator named a peer to dial."""
        entry = self._book.get(peer_id)
        return entry is not None and entry.bootstrap

    def wake(self) -> None:
        self._news.set()

    def wanted(self) -> tuple[str, ...]:
        return tuple(entry.peer_id for entry in self._book)

    async def run(self) -> None:
        for entry in self._book:
            entry.dialling, entry.linked, entry.due = False, False, 0.0  # state of an earlier run
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                now = trio.current_time()
                candidates = self._candidates()
                for entry in self._chosen([each for each in candidates if each.due <= now]):
                    entry.dialling = True
                    nursery.start_soon(self._attempt, entry)
                later = [entry.due for entry in candidates if entry.due > now]
                wake_at = min([now + LOOK_AGAIN_SECONDS, *later])
                with trio.move_on_at(wake_at):
                    await self._news.wait()

    def _candidates(self) -> list[Wanted]:
        here = self._connected()
        for entry in self._book:
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
            for entry in self._book
            if entry.peer_id not in here
            and not entry.dialling
            and (entry.kept or not enough or (seeking and entry.sought))
            and self._admit(entry.peer_id)
        ]

    def _dialled(self, here: frozenset[str]) -> list[Wanted]:
        return [entry for entry in self._book if entry.ours and entry.peer_id in here]

    def seek_anew(self, useful: Callable[[str], bool]) -> list[str]:
        """After our topics changed, forget which peers were named for the old topics.

        Returns the peers to disconnect: of the dialled peers above ENOUGH, the ones that are not `useful` for the new
        topics.
        """
        for entry in self._book:
            entry.sought = False
        self.wake()
        dialled = self._dialled(self._connected())
        idle = [each for each in dialled if not (each.kept or useful(each.peer_id))]
        return [each.peer_id for each in idle[: max(0, len(dialled) - ENOUGH)]]

    def _chosen(self, due: list[Wanted]) -> list[Wanted]:
        """The peers that are dialled now: as many as AT_ONCE and PER_NETWORK leave room for."""
        here = self._connected()
        taken: Counter[str] = Counter()
        """By source: the connected peers that we dialled, and the peers that are dialled now."""
        near: Counter[str] = Counter()
        """The same by network."""
        for entry in self._book:
            if entry.dialling or (entry.ours and entry.peer_id in here):
                taken[_turn(entry)] += 1
                near.update(entry.networks)
        waiting = sorted(due, key=self._lot)
        chosen: list[Wanted] = []
        room = AT_ONCE - sum(entry.dialling for entry in self._book)
        while len(chosen) < room:
            free = [each for each in waiting if each.kept or all(near[net] < PER_NETWORK for net in each.networks)]
            if not free:
                break
            first = min(free, key=lambda each: (not each.kept, taken[_turn(each)]))
            chosen.append(first)
            waiting.remove(first)
            taken[_turn(first)] += 1
            near.update(first.networks)
        return chosen

    def _lot(self, entry: Wanted) -> float:
        """The lowest comes first. After one failure the chance is a quarter, after three a sixteenth."""
        return self._rng.random() * (1 + entry.failures) ** 2

    async def _attempt(self, entry: Wanted) -> None:
        cause = "no address is known"
        addresses = entry.addresses
        deadline = trio.current_time() + ATTEMPT_SECONDS
        try:
            for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
                share = max(0.0, (deadline - trio.current_time()) / left)
                try:
                    with trio.fail_after(min(DIAL_SECONDS, share)):
                        await self._dial(entry.peer_id, address)
                except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a failed dial
                    cause = _short(error)
                else:
                    entry.ours = True
                    entry.answered = address
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
            entry.reported.clear()
            self._notify(BootstrapReached(_full(entry)))

    def _failed(self, entry: Wanted, cause: str) -> None:
        if entry.by:
            self._book.was_wrong(entry.by)
            self._book.drop(entry.peer_id)
            return
        entry.failures += 1
        entry.due = trio.current_time() + self._delay(entry.failures)
        kind = re.sub(r"\d+", "", cause)
        if entry.bootstrap and kind not in entry.reported and len(entry.reported) < MOST_CAUSES:
            entry.reported.add(kind)
            self._notify(BootstrapUnreachable(_full(entry), cause))
        if not entry.bootstrap and entry.failures >= GIVE_UP:
            self._book.drop(entry.peer_id)

    def _delay(self, failures: int) -> float:
        longest = min(FIRST_DELAY * 2.0**failures, LONGEST_DELAY)
        return longest * self._rng.uniform(0.5, 1.0)


def _turn(entry: Wanted) -> str:
    """The source whose turn it takes."""
    return "inbound" if entry.inbound else entry.source


def _full(entry: Wanted) -> str:
    return f"{entry.addresses[0]}/p2p/{entry.peer_id}"


def _short(error: Exception) -> str:
    """One line about the innermost cause in a chain of the library's exceptions."""
    innermost: BaseException = error
    while deeper := innermost.exceptions[0] if isinstance(innermost, BaseExceptionGroup) else innermost.__cause__:
        innermost = deeper
    if isinstance(innermost, trio.TooSlowError):
        return "no answer in time"
    if isinstance(innermost, OSError) and innermost.strerror:
        return innermost.strerror
    return (str(innermost) or type(innermost).__name__).splitlines()[0][:160]
