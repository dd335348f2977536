"""Requests for missing messages and for peers (spec/pull.md): `Synchroniser` sends them, `Responder` answers them.

The validator judges delivered messages as it judges gossiped ones. The responder charges the bytes of an answer to the
peer that asked. The ledger charges a peer for messages that nobody requested.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import trio

from sapo_node.gossip.seen import RecentIds
from sapo_node.gossip.verdict import Verdict
from sapo_node.ingest.fetch import Fetcher, charging
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.validator import Ingest
from sapo_node.net.interface import CIRCUIT, TARGET_PEERS, ConnectedPeers, PeerInfo
from sapo_node.processes.link_budget import LinkBudget
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.trust.constants import Fact, PeerState
from sapo_node.trust.ledger import Ledger
from sapo_protocol import (
    GetRequest,
    InventoryItem,
    ListRequest,
    PeerAddress,
    PeersRequest,
    RemoteError,
    decode_delivery,
    decode_listing,
    decode_peers,
    decode_request,
    encode_delivery,
    encode_listing,
    encode_peers,
    encode_request,
    peer_id,
    public_key_of,
    rollouts_topics,
)
from sapo_protocol.limits import MAX_DELIVERED, MAX_DELIVERY_BYTES, MAX_LISTED, MAX_PX_PEERS
from sapo_protocol.pull import ALL_SHARDS

logger = logging.getLogger(__name__)

Peers = Callable[[], Sequence[PeerInfo]]
"""The connected peers of the swarm."""

INTERVAL = 15.0
"""Mean seconds between two pulls, and, for a node that has joined, between two requests for peers."""
HURRIED_INTERVAL = 3.0
"""Mean seconds between two requests for peers while a followed shard has fewer than TARGET_PEERS peers."""
FIRST_INTERVAL = 1.0
"""The same before the first request for peers. It doubles with each request, so that joining costs few requests."""
REQUESTS = 4
"""Requests for messages in one pull, at most."""
PEER_SECONDS = 30.0
"""Seconds for all requests of one pull, or of one request for peers. Messages that came in time stay."""
PAUSE = 20.0
"""A peer that took t seconds rests for PAUSE * t seconds while there are others: it gets a 20th of the time."""
IN_VAIN_SECONDS = 600.0
"""Seconds for which a node does not ask a peer again for an envelope that the validator did not accept from it."""

BYTES_PER_SECOND, BURST_BYTES = 65_536.0, 2.0 * MAX_DELIVERY_BYTES
"""Bytes for one peer."""
ALL_BYTES_PER_SECOND, ALL_BURST_BYTES = 524_288.0, 8.0 * MAX_DELIVERY_BYTES
"""Bytes for all peers together."""
ASSURED_BYTES_PER_SECOND, ASSURED_BURST_BYTES = 4_096.0, 32_768.0
"""The part of them that the others cannot use: a few peers that request without end must not silence the node."""
LEAST_BYTES = 512
"""Bytes that an answer costs at least: a request for nothing is not free."""
_FRAME_BYTES = 5
"""Bytes of a message in a delivery beyond its own, at most."""


class Responder:
    """Answers the requests of peers that have bytes left."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        message_store: MessageStore,
        ledger: Ledger,
        peers: Peers,
        fetcher: Fetcher,
        on_fetched: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        """`peers` gives the connected peers. `on_fetched(peer, rollouts, groups)` gets the numbers of own rollouts and
        of their bodies in an answer.
        """
        self._fetcher = fetcher
        self._longest = swarm.manifest.max_message_bytes
        self._issuer = swarm.identity.public_key
        self._on_fetched = on_fetched
        self._topics = rollouts_topics(swarm.manifest)
        self._rng = swarm.rng
        self._message_store = message_store
        self._peers = peers
        self._ledger = ledger
        self._clock = swarm.clock
        self._bytes = LinkBudget(
            rate=BYTES_PER_SECOND,
            burst=BURST_BYTES,
            for_all=(ALL_BYTES_PER_SECOND, ALL_BURST_BYTES),
            assured=(ASSURED_BYTES_PER_SECOND, ASSURED_BURST_BYTES),
        )

    async def answer(self, peer: str, data: bytes) -> bytes | None:
        """The answer to a peer's request; None closes the stream without one. Never raises, and waits only for bodies
        that the request makes it fetch.
        """
        if not self._ledger.admits(peer):
            return None
        try:
            request = decode_request(data)
        except RemoteError as error:
            logger.info("refused a request of %s: %s", peer, error)
            self._ledger.report(peer, Fact.INVALID_MESSAGE)
            return None
        if isinstance(request, GetRequest) and request.hops:
            await self._pass_on(request, peer)
        now = self._clock.now()
        room = int(min(self._bytes.left(peer, now), MAX_DELIVERY_BYTES))
        if room < LEAST_BYTES:
            return None
        match request:
            case ListRequest():
                answer = self._listing(request, room)
            case GetRequest():
                answer = self._delivery(request, room, peer)
            case PeersRequest():
                answer = self._introductions(request, peer)
        self._bytes.take(peer, now, cost=max(len(answer), LEAST_BYTES))
        return answer

    async def _pass_on(self, request: GetRequest, peer: str) -> None:
        """Fetch the bodies of a request that are not here, if the peer has bytes for the longest answer (DUTY-14)."""
        [wanted] = request.want
        if not self._bytes.take(peer, self._clock.now(), cost=self._longest):
            return
        try:
            await self._fetcher.pass_on(peer, wanted, request.hops)
        finally:
            self._bytes.give_back(peer, self._clock.now(), self._longest)

    def _listing(self, request: ListRequest, room: int) -> bytes:
        listing = encode_listing(self._message_store.listing(request.epoch, request.shards, request.after, MAX_LISTED))
        return listing if len(listing) <= room else encode_listing([])

    def _delivery(self, request: GetRequest, room: int, peer: str) -> bytes:
        messages = []
        own = bodies = 0
        room -= _FRAME_BYTES
        for wanted in request.want:
            message = self._message_store.message(wanted)
            if message is None:
                continue
            room -= len(message) + _FRAME_BYTES
            if room < 0:
                break
            messages.append(message)
            if self._message_store.is_signed_by(self._issuer, wanted.envelope_id):
                own += 1
                bodies += (wanted.bodies & (self._message_store.bodies(wanted.envelope_id) or 0)).bit_count()
        if own:
            self._on_fetched(peer, own, bodies)
        return encode_delivery(messages)

    def _introductions(self, request: PeersRequest, asker: str) -> bytes:
        """Connected peers that can be met and that follow a requested shard: healthy ones first, then at random."""
        topics = {topic for shard, topic in enumerate(self._topics) if request.shards >> shard & 1}
        met = (each for each in self._peers() if (each.addresses or each.reserved) and each.peer_id != asker)
        known = [each for each in met if not topics.isdisjoint(each.follows)]
        self._rng.shuffle(known)
        known.sort(key=lambda each: self._ledger.state(each.peer_id) is not PeerState.HEALTHY)
        named = [
            PeerAddress(public_key_of(each.peer_id), each.addresses[0] if each.addresses else CIRCUIT)
            for each in known[: request.most]
        ]
        return encode_peers(sorted(named, key=lambda each: each.key))


class Synchroniser:
    """Asks one connected peer after another for its listing, and for the messages that this node lacks."""

    def __init__(
        self,
        swarm: SwarmContext,
        network: ConnectedPeers,
        *,
        ingest: Ingest,
        ledger: Ledger,
        counters: Counters,
        subscriptions: ShardSubscriptions,
    ) -> None:
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._rng = swarm.rng
        self._network = network
        self._ingest = ingest
        self._ledger = ledger
        self._counters = counters
        self._subscriptions = subscriptions
        self._in_vain = RecentIds()
        self._paused: dict[str, float] = {}
        """The time until which a peer rests, by peer."""

    async def run(self) -> None:
        """Ask peers until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pull_again_and_again)
            nursery.start_soon(self._meet_again_and_again)

    async def _pull_again_and_again(self) -> None:
        while True:
            await self._rest(INTERVAL)
            if peers := self._network.peers():
                await self.pull(self._one_of(peers))

    async def _meet_again_and_again(self) -> None:
        interval = FIRST_INTERVAL
        while True:
            await self._rest(interval)
            # Only peers that this node dialled: else strangers that dial in would decide which peers it meets.
            if dialled := [each for each in self._network.peers() if each.outbound]:
                await self.meet(self._one_of(dialled))
                interval = min(2 * interval, INTERVAL if self._sought() == ALL_SHARDS else HURRIED_INTERVAL)
            else:
                interval = FIRST_INTERVAL

    async def _rest(self, mean: float) -> None:
        await trio.sleep(self._rng.uniform(0.5, 1.5) * mean)

    def _one_of(self, peers: Sequence[PeerInfo]) -> str:
        """One of the peers, at random; a paused one only if all are."""
        now = trio.current_time()
        rested = [each for each in peers if self._paused.get(each.peer_id, now) <= now]
        return self._rng.choice(rested or peers).peer_id

    async def pull(self, peer: str) -> None:
        """Ask one peer for missing messages of the open epochs, newest first. Bad answers are charged to it."""
        now = self._counters.epoch(self._clock.now())
        with self._asking(peer):
            for epoch in (now, now - 1):
                if epoch >= 0:
                    await self._pull_epoch(peer, epoch)

    async def meet(self, peer: str) -> None:
        """Ask one peer for the addresses of others, first for those that follow the shards with too few peers."""
        known = {each.peer_id for each in self._network.peers()}
        sought = self._sought()
        with self._asking(peer):
            named = await self._meet_through(peer, PeersRequest(MAX_PX_PEERS, sought))
            if sought != ALL_SHARDS and named <= known:
                # Nothing new: ask for a random peer, to leave this neighbourhood.
                await self._meet_through(peer, PeersRequest(1))

    async def _meet_through(self, peer: str, request: PeersRequest) -> set[str]:
        """Hand the addresses that a peer names to the network. Returns their peer ids."""
        named = decode_peers(await self._network.ask(peer, encode_request(request)), request)
        # In random order, since the network takes few: a peer must not come first because it chose a low key.
        for each in self._rng.sample(named, len(named)):
            self._network.try_address(peer, peer_id(each.key), each.address)
        return {peer_id(each.key) for each in named}

    def _sought(self) -> int:
        """The followed shards with fewer than TARGET_PEERS peers, as bits; all shards if there are none."""
        if len(self._subscriptions.shards) == self._manifest.shards:
            return ALL_SHARDS
        topics = rollouts_topics(self._manifest)
        follow = Counter(topic for peer in self._network.peers() for topic in peer.follows)
        return bits(shard for shard in self._subscriptions.shards if follow[topics[shard]] < TARGET_PEERS) or ALL_SHARDS

    @contextmanager
    def _asking(self, peer: str) -> Iterator[None]:
        """Requests to a peer, within PEER_SECONDS. A bad answer is charged to it; a late or missing one is not."""
        begun = trio.current_time()
        try:
            with charging(self._ledger, peer), trio.move_on_after(PEER_SECONDS):
                yield
        finally:
            now = trio.current_time()
            self._paused = {each: until for each, until in self._paused.items() if until > now}
            self._paused[peer] = now + PAUSE * (now - begun)

    async def _pull_epoch(self, peer: str, epoch: int) -> None:
        shards = bits(self._subscriptions.shards)
        request = ListRequest(epoch, shards=shards)
        held = decode_listing(await self._network.ask(peer, encode_request(request)), request)
        if len(held) == MAX_LISTED:
            # There may be more: start at a random id, so that repeated pulls reach all of them.
            request = ListRequest(epoch, self._rng.randbytes(32), shards)
            held += decode_listing(await self._network.ask(peer, encode_request(request)), request)
        missing = self._missing(peer, held)
        for _ in range(REQUESTS):
            settled = await self._get(peer, missing[:MAX_DELIVERED])
            if not settled:
                return
            missing = missing[settled:]

    def _missing(self, peer: str, held: Sequence[InventoryItem]) -> list[InventoryItem]:
        """The missing envelopes, minus those that this peer failed to deliver; sorted by id.

        In a small swarm their bodies come with them. Elsewhere `Fetcher` requests those of drawn groups.
        """
        with_bodies = self._ingest.is_small_swarm()
        wanted = {each.envelope_id: self._ingest.wants(each, bodies=with_bodies) for each in held}
        return [
            InventoryItem(envelope_id, bodies)
            for envelope_id, bodies in sorted(wanted.items())
            if bodies is not None and not self._in_vain.has(_asked(peer, envelope_id), trio.current_time())
        ]

    async def _get(self, peer: str, wanted: Sequence[InventoryItem]) -> int:
        """Ask for messages. Returns how many of `wanted` are settled: the answer may have no room for the rest.

        0 if the validator accepted none.
        """
        if not wanted:
            return 0
        request = GetRequest(tuple(wanted))
        delivered = decode_delivery(await self._network.ask(peer, encode_request(request)), request, self._manifest)
        taken = 0
        for each in delivered:
            if await self._ingest.handle_synchronised(peer, each.message) is Verdict.ACCEPT:
                taken += 1
            else:
                self._in_vain.add(_asked(peer, each.envelope_id), trio.current_time(), IN_VAIN_SECONDS)
        if not taken:
            return 0
        return [each.envelope_id for each in wanted].index(delivered[-1].envelope_id) + 1


def bits(shards: Iterable[int]) -> int:
    """Shards as bits: bit s for shard s."""
    return sum(1 << shard for shard in shards)


def _asked(peer: str, envelope_id: bytes) -> bytes:
    """The key of a failed request. It names the peer: a peer that sends bare envelopes must not block the others."""
    return peer.encode() + envelope_id
