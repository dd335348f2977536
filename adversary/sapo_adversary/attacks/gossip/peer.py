"""One host of an attacker: correct noise, yamux and multistream, and above them any bytes."""

import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any

import trio
from libp2p import YAMUX_PROTOCOL_ID, Yamux, new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.host.basic_host import _IdentifyNotifee
from libp2p.peer.id import ID
from libp2p.peer.peerstore import create_signed_peer_record
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.transport.tcp.tcp import TCP
from libp2p.utils import encode_varint_prefixed
from libp2p.utils.varint import read_varint_prefixed_bytes_limited
from multiaddr import Multiaddr

from sapo_adversary.attacks.kit import peer_of

# libp2p logs each failed dial as an error, and attackers fail often.
logging.getLogger("libp2p").addHandler(logging.NullHandler())

Hear = Callable[[str, Any], Awaitable[None]]
"""`hear(peer id, RPC)`: called with each RPC of an honest node."""

_MOST_BYTES = 4 * 1024 * 1024
"""Size of one RPC from an honest node, at most."""


class LinkLost(Exception):
    """The honest node or the network ended the link."""


class _FromOneHost(TCP):  # type: ignore[misc]
    """TCP that dials from one address of this machine, so that each attacker looks like a machine of its own."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    async def dial(self, maddr: Any) -> Any:
        return await self.dial_with_source(maddr, (self._host, 0))


class Link:
    """A gossip stream to one honest node."""

    def __init__(self, peer: "Peer", stream: Any) -> None:
        self.peer = peer
        self.stream = stream

    @property
    def open(self) -> bool:
        """True while the library knows of no end of the connection."""
        return not self.stream.muxed_conn.is_closed

    @property
    def may_graft(self) -> bool:
        """True unless the honest node still keeps this host out of its mesh."""
        return trio.current_time() > self.peer.kept_out.get(str(self.stream.muxed_conn.peer_id), -inf)

    async def write(self, data: bytes) -> None:
        """Send any bytes. Raises LinkLost."""
        try:
            await self.stream.write(data)
        except Exception as error:
            raise LinkLost from error

    async def send(self, rpc: Any) -> None:
        """Send one RPC. Raises LinkLost."""
        await self.write(encode_varint_prefixed(rpc.SerializeToString()))

    async def another(self) -> "Link":
        """Open another stream on the same connection."""
        return Link(self.peer, await self.peer.host.new_stream(self.stream.muxed_conn.peer_id, [PROTOCOL_ID_V11]))

    async def close(self) -> None:
        """End the connection."""
        self.peer.links.pop(str(self.stream.muxed_conn.peer_id), None)
        with suppress(Exception):
            await self.peer.host.disconnect(self.stream.muxed_conn.peer_id)

    async def say_where(self, addresses: Sequence[str]) -> None:
        """Send a valid peer record of this host with any addresses."""
        await self.send(rpc_pb2.RPC(senderRecord=_record(self.peer.keys, addresses)))

    async def exchange(self, topic: str, seed: bytes, addresses: Sequence[str]) -> None:
        """Send a PRUNE that recommends one peer for each address; each peer has its own key and a valid record."""
        told = []
        for number, address in enumerate(addresses):
            keys = create_new_key_pair(hashlib.sha256(seed + number.to_bytes(4)).digest())
            identity = ID.from_pubkey(keys.public_key).to_bytes()
            told.append(rpc_pb2.PeerInfo(peerID=identity, signedPeerRecord=_record(keys, [address])))
        await self.control(prune=[rpc_pb2.ControlPrune(topicID=topic, peers=told, backoff=1)])

    async def subscribe(self, topic: str) -> None:
        """Subscribe to a topic."""
        await self.send(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic)]))

    async def control(self, **kinds: Any) -> None:
        """Send control messages, by the names of their kinds in the protocol."""
        await self.send(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(**kinds)))

    async def graft(self, topic: str) -> None:
        """Send GRAFT."""
        await self.control(graft=[rpc_pb2.ControlGraft(topicID=topic)])

    async def publish(self, message: Any) -> None:
        """Forward a message unchanged."""
        await self.send(rpc_pb2.RPC(publish=[message]))


class Peer:
    """A running host."""

    def __init__(self, host: Any, keys: Any) -> None:
        self.host = host
        self.keys = keys
        self.links: dict[str, Link] = {}
        self.kept_out: dict[str, float] = {}
        """By honest peer, the time of trio's clock until which it keeps this host out of its mesh."""
        self._published = 0

    @property
    def address(self) -> str:
        """The address to dial."""
        return str(self.host.get_addrs()[0])

    async def dial(self, address: str) -> Link:
        """Connect with an honest node and open a gossip stream. Raises LinkLost."""
        target = ID.from_string(peer_of(address))
        try:
            await self.host.get_network().dial_addr(Multiaddr(address), target)
            link = Link(self, await self.host.new_stream(target, [PROTOCOL_ID_V11]))
        except Exception as error:
            raise LinkLost from error
        self.links[str(target)] = link
        return link

    def signed(self, data: bytes, topic: str) -> Any:
        """A gossip message of this host, with a valid signature."""
        self._published += 1
        message = rpc_pb2.Message(
            data=data,
            topicIDs=[topic],
            from_id=self.host.get_id().to_bytes(),
            seqno=self._published.to_bytes(8, "big"),
        )
        message.signature = self.keys.private_key.sign(PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString())
        message.key = self.keys.public_key.serialize()
        return message

    @staticmethod
    def author(message: Any) -> str:
        """The author that a message names."""
        return str(ID(message.from_id))

    def answer(self, protocol: str, answer: Callable[[bytes], bytes]) -> None:
        """Answer requests on streams of this protocol: one request, one answer, each after its length."""

        async def serve(stream: Any) -> None:
            with suppress(Exception):  # the library ends a stream in many ways
                request = await read_varint_prefixed_bytes_limited(stream, _MOST_BYTES)
                await stream.write(encode_varint_prefixed(answer(bytes(request))))
                await stream.close()

        self.host.set_stream_handler(protocol, serve)

    async def take(self, stream: Any, hear: Hear) -> None:
        """Read the gossip stream of an honest node to its end, and open one to it if there is none."""
        honest = stream.muxed_conn.peer_id
        try:
            if str(honest) not in self.links:
                self.links[str(honest)] = Link(self, await self.host.new_stream(honest, [PROTOCOL_ID_V11]))
            while True:
                rpc = rpc_pb2.RPC()
                rpc.ParseFromString(await read_varint_prefixed_bytes_limited(stream, _MOST_BYTES))
                for prune in rpc.control.prune:
                    self.kept_out[str(honest)] = trio.current_time() + prune.backoff
                await hear(str(honest), rpc)
        except Exception:  # noqa: BLE001 - the library ends a stream in many ways
            self.links.pop(str(honest), None)


def _record(keys: Any, addresses: Sequence[str]) -> bytes:
    places = [Multiaddr(address) for address in addresses]
    envelope = create_signed_peer_record(ID.from_pubkey(keys.public_key), places, keys.private_key)
    return bytes(envelope.marshal_envelope())


@asynccontextmanager
async def running(seed: bytes, place: tuple[str, int], hear: Hear) -> AsyncIterator[Peer]:
    """A host with this key at this IP address and port, until the context is left."""
    host, port = place
    keys = create_new_key_pair(seed)
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    basic = new_host(
        key_pair=keys,
        sec_opt={NOISE: noise},
        muxer_opt={YAMUX_PROTOCOL_ID: Yamux},
        transports=[_FromOneHost(host)],
        disable_identify_address_discovery=True,
    )
    swarm = basic.get_network()
    for notifee in [found for found in swarm.notifees if isinstance(found, _IdentifyNotifee)]:
        swarm.remove_notifee(notifee)  # its tasks end the host when they fail
    peer = Peer(basic, keys)
    basic.set_stream_handler(PROTOCOL_ID_V11, lambda stream: peer.take(stream, hear))
    async with basic.run(listen_addrs=[Multiaddr(f"/ip4/{host}/tcp/{port}")]):
        try:
            yield peer
        finally:
            await basic.close()
