"""The loop that dials the peers of the address book again and again, which py-libp2p does not do.

- The node always dials bootstrap peers. It dials anchors until GIVE_UP attempts in a row fail.
- It dials other known peers while it has dialled fewer than ENOUGH connections, and fewer than PER_NETWORK into each
  network of the peer. So one network with many addresses cannot take all connections that the node dials.
- While too few connected peers follow the node's topics, it dials up to MOST connections.

It dials AT_ONCE peers at one time. An attempt at a peer takes at most ATTEMPT_SECONDS, which its addresses share. If
more peers are due than there is room for, bootstrap peers and anchors come first. If proven and other peers wait, each
of these kinds gets half of the room. Within a kind the peers draw lots, in which fewer failures make a better chance.
So a crowd that never answers cannot hold all places, whether it answered before or not.
"""

import logging
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import trio

from sapo_node.net.address_book import AddressBook, Wanted
from sapo_node.net.interface import Admit, BootstrapReached, BootstrapUnreachable, Notify
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
FEELER_SECONDS = 10.0  # between two checks whether a peer that dialled us can be dialled
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
        check: Dial | None = None,
        below_target: Callable[[], bool],
        admit: Admit,
        notify: Notify,
        defences: NetworkDefences = NETWORK_DEFENDED,
    ) -> None:
        """`below_target()`: whether a topic that we follow has too few connected peers.

        `check` dials a connected peer at an address, and leaves it as it was connected.
        """
        self._dial = dial
        self._check = check
        self._below_target = below_target
        self._connected = connected
        self._admit = admit
        self._notify = notify
        self._news = trio.Event()
        self._rng = random.Random()  # noqa: S311 - jitter, and the lots
        self._book = AddressBook(connected, defences, self._rng)

    def want(
        self, peer_id: str, addresses: Sequence[str], *, bootstrap: bool = False, anchor: bool = False, by: str = ""
    ) -> None:
        """Add a peer, or put new addresses before the known ones. `by` is the peer that named it, if a peer did: then
        the addresses of a known peer do not change.
        """
        if self._admit(peer_id) and self._book.want(peer_id, addresses, bootstrap=bootstrap, anchor=anchor, by=by):
            self.wake()

    def remember(self, peer_id: str, address: str) -> None:
        """Add a peer that answered at this address before the restart."""
        self.want(peer_id, [address])
        if entry := self._book.get(peer_id):
            entry.answered, entry.proven = address, True

    def all_answered(self) -> tuple[str, ...]:
        """The full addresses that answered us, those of proven peers first."""
        entries = sorted(self._book, key=lambda entry: not entry.proven)
        return tuple(f"{entry.answered}/p2p/{entry.peer_id}" for entry in entries if entry.answered)

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
            if self._check:
                nursery.start_soon(self._feel, self._check)
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

    async def _feel(self, check: Dial) -> None:
        """Learn whether peers that dialled us can be dialled (Bitcoin Core: feelers), one after the other, until
        cancelled. A node that others dialled first would know nobody after a restart.
        """
        while True:
            await trio.sleep(FEELER_SECONDS * self._rng.uniform(0.5, 1.5))
            here = self._connected()
            untried = [each for each in self._book if each.peer_id in here and each.addresses and not each.answered]
            if not untried:
                continue
            entry = self._rng.choice(untried)
            try:
                with trio.fail_after(DIAL_SECONDS):
                    await check(entry.peer_id, entry.addresses[0])
            except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a failed dial
                log.debug("%s does not answer at %s: %r", entry.peer_id, entry.addresses[0], error)
            else:
                entry.answered = entry.addresses[0]

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
            and (_kept(entry) or not enough or (seeking and entry.sought))
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
        idle = [each for each in dialled if not (_kept(each) or useful(each.peer_id))]
        return [each.peer_id for each in idle[: max(0, len(dialled) - ENOUGH)]]

    def _chosen(self, due: list[Wanted]) -> list[Wanted]:
        """The peers that are dialled now: as many as AT_ONCE and PER_NETWORK leave room for."""
        here = self._connected()
        busy: Counter[bool] = Counter()
        """The peers that are dialled, by whether they are proven."""
        near: Counter[str] = Counter()
        """By network: the connected peers that we dialled, and the peers that are dialled now."""
        for entry in self._book:
            busy[entry.proven] += entry.dialling
            if entry.dialling or (entry.ours and entry.peer_id in here):
                near.update(entry.networks)
        waiting = sorted(due, key=self._lot)
        chosen: list[Wanted] = []
        while busy.total() < AT_ONCE:
            free = [each for each in waiting if _kept(each) or all(near[net] < PER_NETWORK for net in each.networks)]
            if not free:
                break
            first = min(free, key=lambda each: (not _kept(each), busy[each.proven]))
            chosen.append(first)
            waiting.remove(first)
            busy[first.proven] += 1
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
                    entry.ours = entry.proven = True
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


def _kept(entry: Wanted) -> bool:
    """Return whether it is dialled however many connections there are."""
    return entry.bootstrap or entry.anchor


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
