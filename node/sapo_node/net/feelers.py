"""Dials peers that dialled this node, to learn whether they answer at the addresses that they announce.

Only an address that answered is told to other peers, and kept for a restart. Bitcoin Core calls such a dial a feeler.

- An address at the IP address that a peer is connected from is dialled soon after the peer joins, and again
  AGAIN_SECONDS after it did not answer.
- For any other address only the word of the peer speaks, and a stranger may name the address of a victim. So only one
  of a network is dialled at one time, and none for FAILED_SECONDS after an address of that network did not answer.
- AT_ONCE peers are dialled at one time, drawn by network. For FAILED_SECONDS after an address did not answer, one peer
  of its network is dialled at one time: peers that never answer make those of their own network wait.
"""

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import trio

from sapo_node.net.dialer import Dial
from sapo_node.processes.bounded import Bounded

log = logging.getLogger(__name__)

AT_ONCE = 4  # peers that are dialled at one time
PAUSE_SECONDS = 0.1  # between two dials, since a handshake costs CPU
DIAL_SECONDS = 5.0  # for one address
TRIED = 2  # addresses of one peer
AGAIN_SECONDS = 120.0
FAILED_SECONDS = 600.0
_NETWORKS = 1_024  # of which the failures are remembered


@dataclass(frozen=True, slots=True)
class Announced:
    """The addresses that a connected peer announces."""

    addresses: tuple[str, ...]
    claimed: bool
    """True if nothing but its word is behind the addresses."""
    network: str
    """The network from which it is connected."""


class Feelers:
    """The peers to be dialled, and the loop that dials them. `run` may be cancelled and run again."""

    def __init__(
        self, dial: Dial, announced: Callable[[str], Announced], result: Callable[[str, str, str], None]
    ) -> None:
        """`dial` dials a connected peer at an address, and leaves it as it was connected. `announced` takes a peer id.

        `result(peer id, address, network)` gets the address that answered; an empty one if none did.
        """
        self._dial = dial
        self._announced = announced
        self._result = result
        self._due: dict[str, float] = {}
        """By peer: when it is dialled."""
        self._dialling: Counter[str] = Counter()
        """By network: how many peers are dialled now."""
        self._failed: Bounded[str, float] = Bounded(_NETWORKS)
        """By network: until when an address that did not answer counts."""
        self._news = trio.Event()
        self._rng = random.Random()  # noqa: S311 - whose turn it is

    def met(self, peer_id: str) -> None:
        """A peer joined that this node did not dial."""
        self._due[peer_id] = 0.0
        self._news.set()

    def left(self, peer_id: str) -> None:
        """A peer is not connected any more."""
        self._due.pop(peer_id, None)

    async def run(self) -> None:
        self._dialling.clear()
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                if turn := self._next():
                    self._due[turn[0]] = trio.current_time() + AGAIN_SECONDS
                    self._dialling[turn[1].network] += 1
                    nursery.start_soon(self._try, *turn)
                    await trio.sleep(PAUSE_SECONDS)
                    continue
                now = trio.current_time()
                with trio.move_on_at(min((due for due in self._due.values() if due > now), default=float("inf"))):
                    await self._news.wait()

    def _next(self) -> tuple[str, Announced] | None:
        """The peer whose turn it is, by a draw over networks. None if no peer can be dialled now."""
        if self._dialling.total() >= AT_ONCE:
            return None
        now = trio.current_time()
        waiting: defaultdict[str, list[tuple[str, Announced]]] = defaultdict(list)
        for peer_id in [peer_id for peer_id, due in self._due.items() if due <= now]:
            announced = self._announced(peer_id)
            has_failed = (until := self._failed.get(announced.network, 0.0)) > now
            if has_failed and announced.claimed:
                self._due[peer_id] = until
            elif not (self._dialling[announced.network] and (has_failed or announced.claimed)):
                waiting[announced.network].append((peer_id, announced))
        return self._rng.choice(waiting[self._rng.choice(list(waiting))]) if waiting else None

    async def _try(self, peer_id: str, announced: Announced) -> None:
        try:
            answered = await first_that_answers(self._dial, peer_id, announced.addresses[:TRIED], DIAL_SECONDS)
        finally:
            self._dialling -= Counter([announced.network])  # which keeps no zeros
            self._news.set()
        if announced.addresses and not answered:
            # Also if the peer has left: else an attacker that leaves at once causes a dial each time.
            self._failed[announced.network] = trio.current_time() + FAILED_SECONDS
        if peer_id in self._due:
            if answered:
                del self._due[peer_id]
            self._result(peer_id, answered, announced.network)


async def first_that_answers(dial: Dial, peer_id: str, addresses: Iterable[str], seconds: float) -> str:
    """The first address at which a peer answers, each within `seconds`; empty if it answers at none."""
    for address in addresses:
        try:
            with trio.fail_after(seconds):
                await dial(peer_id, address)
        except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a failed dial
            log.debug("%s does not answer at %s: %r", peer_id, address, error)
        else:
            return address
    return ""
