"""Asking peers for what gossip did not bring and for other peers, and giving them what they ask for (spec: pull).

Delivered messages pass the same validator as gossiped ones. The peer that asks is charged for the bytes. A peer that
sends messages nobody asked for is charged for them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import trio

from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.validator import Ingest
from sapo_node.net.interface import TARGET_PEERS, Acquaintances, AskFailed, PeerInfo, Verdict
from sapo_node.net.link_budget import LinkBudget
from sapo_node.net.seen_cache import RecentIds
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

INTERVAL, HURRIED_INTERVAL = 15.0, 3.0
"""Seconds between peers that are asked, on average; the shorter ones while a node lacks company."""
REQUESTS = 4
"""Requests for messages to one peer, before the next is asked."""
PEER_SECONDS = 30.0
"""For all requests of one pull, or of one meeting. Messages that came before stay."""
PAUSE = 20.0
"""A peer that took t seconds is asked again after PAUSE * t, if there are others: it gets a 20th of the time."""
IN_VAIN_SECONDS = 600.0
"""For so long a peer is not asked again for what it sent and was not taken."""

BYTES_PER_SECOND, BURST_BYTES = 65_536.0, 2.0 * MAX_DELIVERY_BYTES
"""Given to one peer."""
ALL_BYTES_PER_SECOND, ALL_BURST_BYTES = 524_288.0, 8.0 * MAX_DELIVERY_BYTES
"""Given to all peers together."""
LEAST_BYTES = 512
"""What any answer costs: asking is not free because little comes of it."""
_FRAME_BYTES = 5
"""What a message costs in a delivery beyond its own bytes, at most."""


class Responder:
    """Answers what peers ask, as far as they have not used up their bytes."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        message_store: MessageStore,
        ledger: Ledger,
        peers: Peers,
        on_fetched: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        """`peers` are those that are connected now. `on_fetched` is called with a peer and the number of rollouts of
        this node that the peer was given.
        """
        self._issuer = swarm.identity.public_key
        self._on_fetched = on_fetched
        self._topics = rollouts_topics(swarm.manifest)
        self._rng = swarm.rng
        self._message_store = message_store
        self._peers = peers
        self._ledger = ledger
        self._clock = swarm.clock
        for_all = (ALL_BYTES_PER_SECOND, ALL_BURST_BYTES)
        self._bytes = LinkBudget(rate=BYTES_PER_SECOND, burst=BURST_BYTES, for_all=for_all)

    def answer(self, peer: str, data: bytes) -> bytes | None:
        """The answer to a peer's request; None for one that is to be hung up on. Never raises and never waits."""
        if not self._ledger.admits(peer):
            return None
        try:
            request = decode_request(data)
        except RemoteError as error:
            logger.info("refused a request of %s: %s", peer, error)
            self._ledger.report(peer, Fact.INVALID_MESSAGE)
            return None
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

    def _listing(self, request: ListRequest, room: int) -> bytes:
        listing = encode_listing(self._message_store.listing(request.epoch, request.shards, request.after, MAX_LISTED))
        return listing if len(listing) <= room else encode_listing([])

    def _delivery(self, request: GetRequest, room: int, peer: str) -> bytes:
        messages = []
        own = 0
        room -= _FRAME_BYTES
        for wanted in request.want:
            message = self._message_store.message(wanted)
            if message is None:
                continue
            room -= len(message) + _FRAME_BYTES
            if room < 0:
                break
            messages.append(message)
            own += self._message_store.is_signed_by(self._issuer, wanted.envelope_id)
        if own:
            self._on_fetched(peer, own)
        return encode_delivery(messages)

    def _introductions(self, request: PeersRequest, asker: str) -> bytes:
        """Of the connected peers that follow what is asked about and whose place is known, healthy ones
        first, and others each time.
        """
        topics = {topic for shard, topic in enumerate(self._topics) if request.shards >> shard & 1}
        met = (each for each in self._peers() if each.addresses and each.peer_id != asker)
        known = [each for each in met if not topics.isdisjoint(each.follows)]
        self._rng.shuffle(known)
        known.sort(key=lambda each: self._ledger.state(each.peer_id) is not PeerState.HEALTHY)
        introduced = [PeerAddress(public_key_of(each.peer_id), each.addresses[0]) for each in known[: request.most]]
        return encode_peers(sorted(introduced, key=lambda each: each.key))


class Synchroniser:
    """Asks one connected peer after another what it holds, and for what is missing here."""

    def __init__(
        self,
        swarm: SwarmContext,
        network: Acquaintances,
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
        """By peer: until when other peers are asked instead."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            interval = INTERVAL if self._sought() == ALL_SHARDS else HURRIED_INTERVAL
            await trio.sleep(self._rng.uniform(0.5, 1.5) * interval)
            if peers := self._network.peers():
                await self.pull(self._one_of(peers))
            # Only those that this node chose to dial are asked whom they know: a crowd of strangers has no say in it.
            if chosen := [each for each in peers if each.outbound]:
                await self.meet(self._one_of(chosen))

    def _one_of(self, peers: Sequence[PeerInfo]) -> str:
        """One of the peers, at random; a paused one only if all are."""
        now = trio.current_time()
        rested = [each for each in peers if self._paused.get(each.peer_id, now) <= now]
        return self._rng.choice(rested or peers).peer_id

    async def pull(self, peer: str) -> None:
        """Ask one peer for what is missing of the open epochs, the newest first. Bad answers are charged to it."""
        now = self._counters.epoch(self._clock.now())
        with self._asking(peer):
            for epoch in (now, now - 1):
                if epoch >= 0:
                    await self._pull_epoch(peer, epoch)

    async def meet(self, peer: str) -> None:
        """Ask one peer whom else it knows: first of all those who follow what this node lacks company for."""
        known = {each.peer_id for each in self._network.peers()}
        sought = self._sought()
        with self._asking(peer):
            named = await self._meet_through(peer, PeersRequest(MAX_PX_PEERS, sought))
            if sought != ALL_SHARDS and named <= known:
                # Somebody else then, who may know some: what one's acquaintances know comes to an end.
                await self._meet_through(peer, PeersRequest(1))

    async def _meet_through(self, peer: str, request: PeersRequest) -> set[str]:
        """Seek whom a peer names."""
        introduced = decode_peers(await self._network.ask(peer, encode_request(request)), request)
        for each in introduced:
            self._network.introduce(peer, peer_id(each.key), each.address)
        return {peer_id(each.key) for each in introduced}

    def _sought(self) -> int:
        """The shards for which a node that follows a part of them lacks company; all of them where it lacks none."""
        if len(self._subscriptions.shards) == self._manifest.shards:
            return ALL_SHARDS
        topics = rollouts_topics(self._manifest)
        follow = Counter(topic for peer in self._network.peers() for topic in peer.follows)
        return bits(shard for shard in self._subscriptions.shards if follow[topics[shard]] < TARGET_PEERS) or ALL_SHARDS

    @contextmanager
    def _asking(self, peer: str) -> Iterator[None]:
        """Requests to a peer, within PEER_SECONDS. A bad answer is charged to the peer, no or a slow one is not."""
        begun = trio.current_time()
        try:
            with trio.move_on_after(PEER_SECONDS):
                yield
        except AskFailed as failure:
            logger.info("%s", failure)
        except RemoteError as error:
            logger.info("%s answered what was not asked: %s", peer, error)
            self._ledger.report(peer, Fact.INVALID_MESSAGE)
        finally:
            now = trio.current_time()
            self._paused = {each: until for each, until in self._paused.items() if until > now}
            self._paused[peer] = now + PAUSE * (now - begun)

    async def _pull_epoch(self, peer: str, epoch: int) -> None:
        shards = bits(self._subscriptions.shards)
        request = ListRequest(epoch, shards=shards)
        held = decode_listing(await self._network.ask(peer, encode_request(request)), request)
        if len(held) == MAX_LISTED:
            # There may be more: another part of them every time, since nobody can tell which ones are missing.
            request = ListRequest(epoch, self._rng.randbytes(32), shards)
            held += decode_listing(await self._network.ask(peer, encode_request(request)), request)
        missing = self._missing(peer, held)
        for _ in range(REQUESTS):
            settled = await self._get(peer, missing[:MAX_DELIVERED])
            if not settled:
                return
            missing = missing[settled:]

    def _missing(self, peer: str, held: Sequence[InventoryItem]) -> list[InventoryItem]:
        """What of it this node has not, by id, without what this peer was asked for in vain."""
        wanted = {each.envelope_id: self._ingest.wants(each) for each in held}
        return [
            InventoryItem(envelope_id, bodies)
            for envelope_id, bodies in sorted(wanted.items())
            if bodies is not None and not self._in_vain.has(_asked(peer, envelope_id))
        ]

    async def _get(self, peer: str, wanted: Sequence[InventoryItem]) -> int:
        """Ask for messages. Returns how many of `wanted` are settled: the others may have found no room in the answer.
        None is where nothing came that could be taken.
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
                self._in_vain.add(_asked(peer, each.envelope_id), IN_VAIN_SECONDS)
        if not taken:
            return 0
        return [each.envelope_id for each in wanted].index(delivered[-1].envelope_id) + 1


def bits(shards: Iterable[int]) -> int:
    """Shards as a request names them: bit s for shard s."""
    return sum(1 << shard for shard in shards)


def _asked(peer: str, envelope_id: bytes) -> bytes:
    """What is remembered of asking in vain: by peer, or one that sends envelopes without bodies kept others away."""
    return peer.encode() + envelope_id
