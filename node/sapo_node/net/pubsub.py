"""py-libp2p's gossip, with limits and with its crashes contained.

A message of a peer reaches the node only through `HardenedPubsub.push_msg`. This checks admission, topic, size and
gossip signature, and then asks the node for its verdict. Only a message with an ACCEPT goes on to the router, which
forwards it. If an RPC cannot be parsed or exceeds a limit, its sender loses the connection. No other peer is affected.
"""

import logging
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import trio
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from libp2p.exceptions import ParseError
from libp2p.io.exceptions import IOException, MessageTooLarge
from libp2p.network.connection.exceptions import RawConnError
from libp2p.pubsub import pubsub
from libp2p.pubsub.mcache import CacheEntry, MessageCache
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX, signature_validator
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from sapo_node.gossip.score import Offence
from sapo_node.net.inbound import NOT_ADMITTED, quietly
from sapo_node.net.interface import Admit, Verdict
from sapo_node.net.outbound import OutboundQueues
from sapo_node.net.own_stream import OneStreamPubsub
from sapo_node.net.patches import forget_record
from sapo_node.net.router import SUBSCRIPTIONS, ScoredGossipSub, excess_of, sanitise
from sapo_node.net.seen_cache import RecentIds, SeenCache, content_id, message_id
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences
from sapo_node.processes.link_budget import LinkBudget
from sapo_protocol.signature import PUBLIC_KEY_BYTES

log = logging.getLogger(__name__)

SEQNO_BYTES = 8
_MULTIHASH_BYTES = 2
"""Bytes of a peer id before the encoded key of the peer."""
SEEN_SECONDS = 120.0
PARTS_PER_SECOND, PARTS_AT_ONCE = 400.0, 2_000.0
"""Messages, copies included, and subscriptions of one peer. The node takes half as many new messages of one."""
PAUSE_SECONDS = 0.05
SWARM_TOPIC = re.compile(r"/sapo/[0-9]{1,4}/([0-9a-f]{64})/")


class Subscriptions:
    """The topics of this node that each peer follows.

    A peer names all its topics in the first RPC of a stream, and later each change. Two streams of a peer may overlap,
    and the node reads their RPCs in any order: a peer that restarts may be back before its old stream has ended. So the
    newest stream counts. When it ends, the stream before it counts again.
    """

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._named: dict[Any, dict[Any, set[str]]] = {}
        """By peer and stream, the newest stream last."""

    def hear(self, peer: Any, stream: Any, subscriptions: Iterable[Any]) -> None:
        """Note the subscriptions of one RPC."""
        named = self._named.setdefault(peer, {}).setdefault(stream, set())
        for each in subscriptions:
            if not each.subscribe:
                named.discard(each.topicid)
            elif each.topicid in self._topics and len(named) < SUBSCRIPTIONS:
                named.add(each.topicid)

    def end(self, peer: Any, stream: Any) -> None:
        """The stream has ended."""
        streams = self._named.get(peer, {})
        streams.pop(stream, None)
        if not streams:
            self._named.pop(peer, None)

    def of(self, peer: Any) -> set[str] | None:
        """The topics that the peer follows; None if none of its open streams has named one."""
        streams = self._named.get(peer)
        return next(reversed(streams.values())) if streams else None


def is_strictly_signed(message: Any) -> bool:
    """Return whether a message is signed as GossipSub's policy StrictSign demands. The key may be missing.

    py-libp2p ignores the key if the author's peer id holds it too, and takes sequence numbers of any length. Other
    libraries refuse such a message and charge the peer that forwarded it. Either field could also hold a megabyte. So
    the node forwards only what every library takes. Raises an error of the library for a key that it cannot read.
    """
    if not signature_validator(message) or len(message.seqno) != SEQNO_BYTES:
        return False
    return message.key in (b"", message.from_id[_MULTIHASH_BYTES:])


def may_be_taken_elsewhere(message: Any) -> bool:
    """Return whether OpenSSL accepts the signature of a message for the key in its author's peer id.

    OpenSSL accepts keys of small order, with which anybody can sign, and libsodium does not. An honest peer may have
    forwarded such a message, so the node does not charge the sender.
    """
    fields = {"data": message.data, "topicIDs": message.topicIDs, "from_id": message.from_id, "seqno": message.seqno}
    signed = PUBSUB_SIGNING_PREFIX.encode() + rpc_pb2.Message(**fields).SerializeToString()
    try:
        Ed25519PublicKey.from_public_bytes(message.from_id[-PUBLIC_KEY_BYTES:]).verify(message.signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Gossip:
    """The callables and settings that the node gives to the gossip layer."""

    seen_caches: Mapping[str, SeenCache]
    """By topic. The node uses no other topics."""
    admit: Admit
    offended: Callable[[str, str], None]
    """(peer id, cause): a peer broke the gossip protocol."""
    joined: Callable[[str], None]
    """(peer id): a peer announced that it follows a topic of ours."""
    foreign: Callable[[str, str], None]
    """(peer id, network id): a peer announced that it follows another swarm."""
    defences: NetworkDefences = NETWORK_DEFENDED


class ContentCache(MessageCache):  # type: ignore[misc]
    """Messages kept for gossip repair, under the same id as in `seen_messages`.

    The library keeps them under author and sequence number, so peers request messages that they already have.
    """

    def put(self, msg: Any) -> None:
        key = _id(msg)
        if key not in self.msgs:
            self.msgs[key] = msg
            self.history[0].append(CacheEntry(key, msg.topicIDs))


class HardenedGossipSub(ScoredGossipSub):
    """The router, without the library's tables that grow for ever or hold whole messages."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.mcache = ContentCache(settings["gossip_window"], settings["gossip_history"])
        # The library keeps one timestamp per message for ever, for a feature that is switched off.
        self.recent_message_deliveries: Any = defaultdict(lambda: deque(maxlen=1))

    def _check_equivocation(self, _message: Any) -> bool:
        """Always true: the node finds equivocation in signed envelopes. The library would keep a thousand messages."""
        return True


class HardenedPubsub(OneStreamPubsub):
    """The gossip service; see the module's docstring."""

    def __init__(self, host: Any, router: HardenedGossipSub, gossip: Gossip, *, counter: int) -> None:
        super().__init__(
            host,
            router,
            msg_id_constructor=_id,
            max_subscriptions_per_rpc=SUBSCRIPTIONS,
            max_subscriptions_per_peer=SUBSCRIPTIONS,
            allowed_topics=set(gossip.seen_caches),
        )
        self.seen_messages.stop()  # ends the thread that sweeps the library's unbounded cache
        self.seen_messages: Any = RecentIds()
        # The library's counter starts at the time in seconds, so a fast publisher repeats numbers after a restart.
        self.counter = counter
        self._gossip = gossip
        self._defences = gossip.defences
        self._streams: Counter[Any] = Counter()
        self._subscriptions = Subscriptions(gossip.seen_caches)
        self._parts = LinkBudget(rate=PARTS_PER_SECOND, burst=PARTS_AT_ONCE)
        self.peer_queues: Any = OutboundQueues(self._disconnect_slow)

    async def stream_handler(self, stream: Any) -> None:
        peer_id = stream.muxed_conn.peer_id
        if self._streams[peer_id] >= self._defences.gossip_streams or not self._gossip.admit(str(peer_id)):
            log.info("refused a gossip stream of %s: it has %d, or is not admitted", peer_id, self._streams[peer_id])
            await quietly(stream.reset)
            return
        self._streams[peer_id] += 1
        try:
            await super().stream_handler(stream)
        except Exception as error:  # noqa: BLE001 - an error must not reach the swarm's nursery
            await self._give_up(stream, f"unreadable RPC: {type(error).__name__}")
        finally:
            self._streams[peer_id] -= 1
            if not self._streams[peer_id]:
                del self._streams[peer_id]
            self._subscriptions.end(peer_id, stream)
            if self._peer_is_connected(peer_id):
                self._follow(peer_id)

    async def continuously_read_stream(self, stream: Any) -> None:
        """Read and process one RPC after the other, so that a peer that floods waits for its own messages."""
        peer_id = stream.muxed_conn.peer_id
        try:
            while self.manager.is_running:
                raw = await _next_frame(stream, self.max_inbound_rpc_size, self._defences.frame_seconds)
                rpc = rpc_pb2.RPC()
                rpc.ParseFromString(raw)
                rpc.DiscardUnknownFields()  # no signature covers them, and they would be forwarded with a message
                await self._process(peer_id, stream, rpc)
        except MessageTooLarge:
            await self._give_up(stream, "RPC too large")
        except trio.TooSlowError:
            # An honest peer has one stream. Each further one counts twice, so that a peer with four is refused.
            count = 2 * self._streams[peer_id] - 1
            self.router.scores.offended(trio.current_time(), str(peer_id), Offence.UNFINISHED, count)
            await self._give_up(stream, "RPC never finished")
        except (IOException, RawConnError):
            return  # the stream or its connection ended

    async def _process(self, peer_id: Any, stream: Any, rpc: Any) -> None:
        if not self._gossip.admit(str(peer_id)):
            await self._disconnect(peer_id, NOT_ADMITTED)
            return
        if excess := excess_of(rpc):
            await self._expel(peer_id, excess)
            raise ParseError(excess)
        await self._wait_for_rate(peer_id, rpc)
        if not self.router.within_rate(peer_id, rpc):
            await self._expel(peer_id, "too many control messages")
            return
        # A record only adds addresses. The rest of the RPC counts whatever becomes of it. The function is looked up in
        # its module, where `patches` has replaced it.
        if not pubsub.maybe_consume_signed_record(rpc, self.host, peer_id):
            self._gossip.offended(str(peer_id), "invalid peer record")
        for message in rpc.publish:
            if not self.topic_ids.isdisjoint(message.topicIDs):
                await self.push_msg(peer_id, message)
        if not self._peer_is_connected(peer_id):
            return  # it left while a message waited for its verdict, and nothing would forget the rest again
        if rpc.subscriptions:
            self._subscriptions.hear(peer_id, stream, rpc.subscriptions)
            self._follow(peer_id)
            self._note_foreign(peer_id, rpc.subscriptions)
        if rpc.HasField("control"):
            if self._defences.no_peer_exchange:
                sanitise(rpc.control, self.topic_ids)
            await self.router.handle_rpc(rpc, peer_id)

    async def _wait_for_rate(self, peer_id: Any, rpc: Any) -> None:
        """Wait until the peer is within its rate. Honest peers send copies too, so none is charged for them."""
        cost = len(rpc.publish) + len(rpc.subscriptions)
        while not self._parts.take(str(peer_id), trio.current_time(), cost):  # noqa: ASYNC110 - tokens come back with time
            await trio.sleep(PAUSE_SECONDS)

    async def push_msg(self, msg_forwarder: Any, msg: Any) -> None:
        if msg_forwarder == self.my_id:
            # The node may publish a message again, so it must not count as seen.
            self.seen_messages.discard(_id(msg))
            await super().push_msg(msg_forwarder, msg)
            return
        try:
            await self._consider(msg_forwarder, msg)
        except Exception as error:  # noqa: BLE001 - one message must not end the service
            self._gossip.offended(str(msg_forwarder), f"unreadable message: {type(error).__name__}")

    async def _consider(self, forwarder: Any, message: Any) -> None:
        peer = str(forwarder)
        if not self._gossip.admit(peer):
            return
        if len(message.topicIDs) != 1:
            self._gossip.offended(peer, "message in several topics")
            return
        topic, key = message.topicIDs[0], content_id(message.data)
        cache = self._gossip.seen_caches[topic]
        if (owed := self.router.promised(forwarder, topic)) and _id(message) in owed:
            self.router.kept(forwarder, topic)
        if cache.knows(key):
            self.router.copied(forwarder, key)
            return
        if len(message.data) > cache.max_bytes:
            self._gossip.offended(peer, "message too large")
            return
        # Before the node is asked, because it is asked once per content. A copy with a bad gossip signature is not
        # forwarded, and would otherwise suppress the good copies.
        if not is_strictly_signed(message):
            if not may_be_taken_elsewhere(message):
                self._gossip.offended(peer, "bad gossip signature")
            return
        self.router.arrives(forwarder, topic, key)
        verdict = await cache.ask(peer, message.data)
        if verdict is Verdict.ACCEPT:
            self.router.accepted(key)
            self._mark_msg_seen(message)
            # The library's `push_msg` would verify the signature again, and has no further checks.
            await self.router.publish(forwarder, message)
        elif verdict not in (None, Verdict.BUSY):
            # Gossip does not fetch it again. The cache decides whether the node is asked about it again.
            self.seen_messages.add(_id(message), SEEN_SECONDS)

    def _mark_msg_seen(self, msg: Any) -> None:
        self.seen_messages.add(_id(msg), SEEN_SECONDS)

    def notify_subscriptions(self, publish_message: Any) -> None:
        """Does nothing: messages reach the node through `handle`, not through the library's subscription."""

    def _follow(self, peer_id: Any) -> None:
        """The peer follows what its open streams say, and nothing else. It keeps what it follows if it has none."""
        topics = self._subscriptions.of(peer_id)
        if topics is None:
            return
        for topic in [topic for topic, peers in self.peer_topics.items() if peer_id in peers and topic not in topics]:
            self._forget_subscription(peer_id, topic)
            self.router.mesh.get(topic, set()).discard(peer_id)
        for topic in topics:
            self.handle_subscription(peer_id, rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic))
            self._gossip.joined(str(peer_id))

    def _note_foreign(self, peer_id: Any, subscriptions: Iterable[Any]) -> None:
        for each in subscriptions:
            swarm = SWARM_TOPIC.match(each.topicid)
            if each.subscribe and swarm and each.topicid not in self._gossip.seen_caches:
                self._gossip.foreign(str(peer_id), swarm.group(1))

    def _disconnect_slow(self, peer_id: Any) -> None:
        self.manager.run_task(self._disconnect, peer_id, "it reads too slowly, and the queues are full")

    async def _expel(self, peer_id: Any, cause: str) -> None:
        """Report a peer whose stream can no longer be read, and close its connections."""
        self._gossip.offended(str(peer_id), cause)
        forget_record(self.host, peer_id)
        await self._disconnect(peer_id, cause)

    async def _disconnect(self, peer_id: Any, why: str) -> None:
        await self.host.get_network().close_peer(peer_id, why)

    async def _give_up(self, stream: Any, cause: str) -> None:
        await self._expel(stream.muxed_conn.peer_id, cause)
        await quietly(stream.reset)
        self._handle_dead_peer(stream.muxed_conn.peer_id)


async def _next_frame(stream: Any, limit: int, seconds: float) -> bytes:
    """The next RPC. A peer may wait any time before an RPC, but must finish it within `seconds` of its first byte.

    Raises trio.TooSlowError if the RPC takes longer, MessageTooLarge for more than `limit` bytes, and IOException at
    the end of the stream.
    """
    first = await stream.read(1)
    with trio.fail_after(seconds):
        return bytes(await read_varint_prefixed_bytes_limited(_Begun(first, stream), limit))


@dataclass(slots=True)
class _Begun:
    """A stream whose first byte has been read."""

    first: bytes
    stream: Any

    async def read(self, count: int | None = None) -> bytes:
        """The byte that has been read, then the rest."""
        first, self.first = self.first, b""
        return first or bytes(await self.stream.read(count))


def _id(message: Any) -> bytes:
    """The id of a gossip message. A message in no topic or several has an id too; `_consider` refuses it."""
    return message_id("".join(message.topicIDs), message.data)
