"""Fetches bodies from peers: those of drawn groups, and those that another peer requested here (spec/pull.md).

A body comes from the issuer if it is connected, else from the peer that brought the envelope, else from other peers of
its topic, which may pass the request on. The node asks the next source after HEDGE_SECONDS, or when the last one has
failed, and takes the first correct answer. It passes a request of a peer on in the same way, to HOP_SOURCES sources.

A peer that gave nothing is asked after the others for LATE_SECONDS. A wrong answer is charged to the peer that sent it.
A missing answer is charged to nobody: the peer may not have the body. So an issuer that withholds its bodies loses only
its own turn (`Lottery.credit`). Bodies that nobody gives must not multiply requests:

- Nobody passes a request on if the node that makes it is connected with the issuer.
- A request that was passed on and brought nothing is not passed on again for LATE_SECONDS.
- After a turn for which no body came, the node asks HOP_SOURCES peers for the next bodies of that issuer.

    fetcher.begin(turn, done)                # a turn of this node; calls done(turn) with the bodies that came
    await fetcher.pass_on(peer, request)     # afterwards the message store has the bodies that came
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import trio

from sapo_node.gossip.seen import RecentIds
from sapo_node.groups.book import Bodies, Turn
from sapo_node.ingest.store import MessageStore, bits_of
from sapo_node.ingest.validator import ReplayWindow
from sapo_node.net.interface import AskFailed, ConnectedPeers
from sapo_node.processes.bounded import Bounded
from sapo_node.storage.context import SwarmContext
from sapo_node.trust.constants import Fact
from sapo_node.trust.ledger import Ledger
from sapo_protocol import (
    GetRequest,
    InventoryItem,
    RemoteError,
    Rollout,
    decode_delivery,
    decode_message,
    encode_request,
    match_bodies,
    open_message,
    peer_id,
    topic_of,
)
from sapo_protocol.limits import MAX_HOPS

logger = logging.getLogger(__name__)

SOURCES = 5
"""Peers that the node asks for the bodies of one turn, at most."""
HOP_SOURCES = 2
"""Peers to which the node passes a request on, at most: the second one HOP_SECONDS after the first."""
HEDGE_SECONDS = 3.0
"""Seconds after which the node asks the next source as well."""
ANSWER_SECONDS, HOP_SECONDS = 5.0, 1.0
"""Seconds that a source has to answer, and those that it has beside them for each hop of the request (DUTY-13)."""
FETCH_SECONDS = 15.0
"""Seconds for all sources of a turn together."""
LATE_SECONDS = 60.0
"""Seconds for which the node asks a peer after all others if it gave nothing, or nothing within HEDGE_SECONDS."""
WITHHELD_SECONDS = 600.0
"""Seconds for which the node remembers that no body of an issuer came."""
LINK_REQUESTS = 2
"""Open requests for bodies to one peer: one that answers late must not block the link."""
_LINKS = 1_024
"""Links whose open requests are counted."""


@contextmanager
def charging(ledger: Ledger, peer: str) -> Iterator[None]:
    """Ask a peer in this block. A bad answer is charged to it; a missing one is not."""
    try:
        yield
    except AskFailed as failure:
        logger.info("%s", failure)
    except RemoteError as error:
        logger.info("%s answered what was not asked: %s", peer, error)
        ledger.report(peer, Fact.INVALID_MESSAGE)


class _Fetch:
    """The bodies of one rollout that are wanted, and those that came."""

    def __init__(self, rollout: Rollout, wanted: int) -> None:
        """`wanted` has bit k for group k."""
        self.rollout = rollout
        self.missing = wanted
        self.bodies: list[bytes | None] = [None] * len(rollout.bodies)
        self.answered = trio.Event()

    def add(self, bodies: Bodies) -> None:
        """Add the wanted ones of these bodies."""
        for k, body in enumerate(bodies):
            if body is not None and self.missing >> k & 1:
                self.bodies[k] = body
                self.missing &= ~(1 << k)

    def end_answer(self) -> None:
        """Note that a source has answered or failed."""
        self.answered.set()
        self.answered = trio.Event()


class Fetcher:
    """Requests bodies while `run` runs; otherwise every turn is done at once, without its bodies."""

    def __init__(
        self, swarm: SwarmContext, *, message_store: MessageStore, ledger: Ledger, window: ReplayWindow
    ) -> None:
        self._manifest = swarm.manifest
        self._rng = swarm.rng
        self._message_store = message_store
        self._ledger = ledger
        self._window = window
        self._network: ConnectedPeers | None = None
        self._nursery: trio.Nursery | None = None
        self._links: Bounded[str, trio.Semaphore] = Bounded(_LINKS)
        self._late = RecentIds(_LINKS)
        """The peers that are asked after all others."""
        self._withholding = RecentIds()
        """The issuers of whose last drawn rollout no body came."""
        self._passed_on: dict[bytes, trio.Event] = {}
        """By envelope id, the end of a request that was passed on."""
        self._in_vain = RecentIds()
        """The requests that were passed on and brought nothing, by hops and envelope id."""

    async def run(self, network: ConnectedPeers) -> None:
        """Fetch until cancelled."""
        async with trio.open_nursery() as nursery:
            self._network, self._nursery = network, nursery
            try:
                await trio.sleep_forever()
            finally:
                self._network = self._nursery = None

    def begin(self, turn: Turn, done: Callable[[Turn], None]) -> None:
        """Fetch the missing bodies of a turn, and call `done` with the turn and what came within FETCH_SECONDS."""
        if self._nursery is None:
            done(turn)
        else:
            self._nursery.start_soon(self._bring, turn, done)

    def expects(self, turn: Turn) -> bool:
        """Return False if no body of the last drawn rollout of this issuer came.

        The node asks HOP_SOURCES peers for its bodies, and no round waits for them.
        """
        return not self._withholding.has(turn.rollout.opened.issuer, trio.current_time())

    async def pass_on(self, asker: str, wanted: InventoryItem, hops: int) -> None:
        """Fetch bodies that a peer requested and that this node lacks. `hops` is that of the request, at least 1.

        If the same envelope is being fetched for another peer, wait for that instead (DUTY-14).
        """
        held = self._message_store.bodies(wanted.envelope_id)
        bare = self._message_store.message(InventoryItem(wanted.envelope_id, 0))
        if held is None or bare is None:
            return
        if wanted.envelope_id in self._passed_on:
            await self._passed_on[wanted.envelope_id].wait()
            return
        now = trio.current_time()
        if any(self._in_vain.has(_passed(wanted, each), now) for each in range(hops, MAX_HOPS + 1)):
            return
        rollout = open_message(bare, self._manifest)
        groups = (1 << len(rollout.bodies)) - 1
        fetch = _Fetch(rollout, wanted.bodies & groups & ~held)
        ended = self._passed_on[wanted.envelope_id] = trio.Event()
        try:
            sources = self._sources(rollout, most=HOP_SOURCES, without=asker)
            await self._race(sources, fetch, hops=hops - 1, hedge=HOP_SECONDS)
        finally:
            del self._passed_on[wanted.envelope_id]
            ended.set()
        if not any(fetch.bodies):
            self._in_vain.add(_passed(wanted, hops), trio.current_time(), LATE_SECONDS)
        self._keep(fetch)

    async def _bring(self, turn: Turn, done: Callable[[Turn], None]) -> None:
        fetch = _Fetch(turn.rollout, turn.missing)
        fetch.add(self._message_store.held(turn.rollout.opened.envelope_id))
        try:
            sources = self._sources(turn.rollout, most=SOURCES if self.expects(turn) else HOP_SOURCES)
            with trio.move_on_after(FETCH_SECONDS):
                await self._race(sources, fetch, hops=MAX_HOPS, hedge=HEDGE_SECONDS)
        finally:
            if any(fetch.bodies):
                self._withholding.discard(turn.rollout.opened.issuer)
            else:
                self._withholding.add(turn.rollout.opened.issuer, trio.current_time(), WITHHELD_SECONDS)
            self._keep(fetch)
            done(self._complete(turn, fetch))

    def _complete(self, turn: Turn, fetch: _Fetch) -> Turn:
        """The turn with the bodies that came. A group whose body gossip brought meanwhile waits in the book again."""
        came = bits_of(tuple(fetch.bodies))
        known = self._window.add(turn.rollout.opened.envelope_id, came)
        bodies = tuple(new or old for new, old in zip(fetch.bodies, turn.rollout.bodies, strict=True))
        groups = tuple(k for k in turn.groups if not known >> k & 1)
        return replace(turn, rollout=replace(turn.rollout, bodies=bodies), groups=groups)

    def _keep(self, fetch: _Fetch) -> None:
        """Keep bodies for the peers that request them, as long as the message store has room."""
        if any(fetch.bodies):
            self._message_store.put(replace(fetch.rollout, bodies=tuple(fetch.bodies)))

    async def _race(self, sources: Sequence[str], fetch: _Fetch, *, hops: int, hedge: float) -> None:
        """Ask one source after another until no body is missing: the next when one has failed, or after `hedge` s.

        If the issuer is connected, nobody passes the request on: it would only come to the issuer again.
        """
        if self._is_connected(peer_id(fetch.rollout.opened.issuer)):
            hops = 0
        async with trio.open_nursery() as nursery:

            async def ask(source: str) -> None:
                await self._ask(source, fetch, hops)
                if not fetch.missing:
                    nursery.cancel_scope.cancel()

            for source in sources:
                if not fetch.missing:
                    break
                answered = fetch.answered
                nursery.start_soon(ask, source)
                with trio.move_on_after(hedge):
                    await answered.wait()

    async def _ask(self, source: str, fetch: _Fetch, hops: int) -> None:
        """Ask one source for the missing bodies."""
        network, begun, before = self._network, trio.current_time(), fetch.missing
        if network is None:
            return
        try:
            with charging(self._ledger, source), trio.move_on_after(ANSWER_SECONDS + HOP_SECONDS * hops):
                async with self._slots(source):
                    request = GetRequest((InventoryItem(fetch.rollout.opened.envelope_id, fetch.missing),), hops)
                    answer = await network.ask(source, encode_request(request))
                for delivered in decode_delivery(answer, request, self._manifest):
                    _, bodies = decode_message(delivered.message, self._manifest)
                    fetch.add(match_bodies(fetch.rollout.opened, fetch.rollout.header, bodies).bodies)
        finally:
            if fetch.missing == before or trio.current_time() >= begun + HEDGE_SECONDS:
                self._late.add(source.encode(), trio.current_time(), LATE_SECONDS)
            fetch.end_answer()

    def _sources(self, rollout: Rollout, *, most: int, without: str = "") -> Sequence[str]:
        """The connected peers to ask, `most` of them: the issuer, the bringer, and others of the topic.

        Late peers and links in use come last, and are left out first, except the issuer.
        """
        peers = self._network.peers() if self._network is not None else ()
        topic = topic_of(self._manifest, rollout.opened.issuer, rollout.header.epoch)
        others = [each.peer_id for each in peers if topic in each.follows]
        bringer = self._message_store.bringer(rollout.opened.envelope_id)
        others = sorted((bringer, *self._rng.sample(others, len(others))), key=self._is_last)
        connected = {each.peer_id for each in peers} - {without}
        sources = [each for each in dict.fromkeys((peer_id(rollout.opened.issuer), *others)) if each in connected]
        return sorted(sources[:most], key=self._is_last)

    def _is_connected(self, peer: str) -> bool:
        return self._network is not None and any(each.peer_id == peer for each in self._network.peers())

    def _is_last(self, peer: str) -> bool:
        slots = self._links.get(peer)
        return self._late.has(peer.encode(), trio.current_time()) or (slots is not None and slots.value == 0)

    def _slots(self, peer: str) -> trio.Semaphore:
        slots = self._links.get(peer) or trio.Semaphore(LINK_REQUESTS)
        self._links[peer] = slots
        return slots


def _passed(wanted: InventoryItem, hops: int) -> bytes:
    """The key of a request that was passed on. It has the hops: one with fewer must not stop one that goes farther."""
    return bytes([hops]) + wanted.envelope_id
