"""Builds a libp2p host with our settings and runs one session of it, until the session fails or is stopped.

Gossip is that of `sapo_node.gossip`, and not the library's. The settings suit py-libp2p 0.8.1: noise and yamux only.
Three automatic actions are switched off. The library dials peers that it heard of. It asks every peer to identify
itself, in tasks whose failure ends the process. It accepts identify reports that it did not ask for. Inbound
connections do not pass through the swarm's own handler, but through `Inbound`.
"""

import ipaddress
import logging
import random
import socket
import struct
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.identity.identify_push.identify_push import ID_PUSH
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.rcmgr.connection_limits import ConnectionLimits
from libp2p.rcmgr.manager import ResourceLimits, ResourceManager
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr
from nacl.signing import SigningKey

from sapo_node.gossip.machine import Machine
from sapo_node.gossip.seen import Seen
from sapo_node.gossip.signing import Author
from sapo_node.net import addresses, inbound, patches
from sapo_node.net.gossip_streams import Gossip, GossipStreams
from sapo_node.net.hole_punch import HolePunching
from sapo_node.net.inbound import NOT_ADMITTED, Inbound, close_link, shielded
from sapo_node.net.interface import AskFailed, Reachability, Requests
from sapo_node.net.peer_records import PeerRecords
from sapo_node.net.reachability import AutoNat, seen_by
from sapo_node.net.relay import Relay
from sapo_node.net.request_response import Asking
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences
from sapo_node.net.yamux import BoundedMuxer

log = logging.getLogger(__name__)

CONNECTIONS = 64
PER_PEER = 3  # connections; two nodes that dial each other at once hold two for a moment
CLOSE_SECONDS = 2.0
INTERFACES_SECONDS = 60.0  # from one look at the addresses of this machine to the next


class TrackedTcp(TCP):  # type: ignore[misc]
    """TCP that knows its sockets. The library leaves them open if it fails or has no time to close them."""

    def __init__(self, accept: Callable[[Any], Awaitable[None]]) -> None:
        """`accept(socket)` serves a socket that a peer opened, until its connection ends.

        The library's own function waits for the end of the swarm instead. Every connection would keep its slot for
        ever, and after a day the node would accept no connection.
        """
        super().__init__()
        self._accept = accept
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.listeners: list[Any] = []

    def create_listener(self, _handler: Any) -> Any:
        self.listeners.append(super().create_listener(self._take))
        return self.listeners[-1]

    async def _take(self, socket: Any) -> None:
        self._track(socket)
        await self._accept(socket)

    def _track(self, socket: Any) -> None:
        """Remember a socket, and the address of its peer, which the library does not find out for IPv6."""
        self.opened.add(socket)
        remote = socket.stream.socket.getpeername()[:2]
        socket.get_remote_address = lambda: remote

    async def give_up(self) -> None:
        """Close all sockets. An open listener would take connections from the listener of the next session."""
        for stream in list(self.opened):
            stream.stream.socket.close()
        for listener in self.listeners:
            await shielded(listener.close)

    async def dial(self, maddr: Any) -> Any:
        raw = await super().dial(maddr)
        self._track(raw.stream)
        return raw

    async def dial_with_source(self, maddr: Any, source: tuple[str, int]) -> Any:
        raw = await super().dial_with_source(maddr, source)
        self._track(raw.stream)
        # To close it then leaves no TIME_WAIT, in which nobody can dial the same address from the same port again.
        raw.stream.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return raw


patches.apply()


def build_host(
    seed: bytes,
    tcp: TrackedTcp,
    advertised: Callable[[list[Any]], list[Any]],
    defences: NetworkDefences = NETWORK_DEFENDED,
) -> Any:
    """A host that does not run yet.

    `seed` is the 32 secret bytes of our Ed25519 key. `advertised` turns the addresses that the host listens on into the
    addresses that it announces.
    """
    key_pair = create_new_key_pair(seed)
    noise = NoiseTransport(key_pair, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(
        key_pair=key_pair,
        sec_opt={NOISE: noise},  # without it the host also accepts plaintext
        transports=[tcp],
        resource_manager=_limits(defences),
        connection_config=ConnectionConfig(
            max_connections=_most(defences),
            min_connections=0,
            low_watermark=0,
            high_watermark=_most(defences),
            max_connections_per_peer=PER_PEER,
            dial_timeout=inbound.HANDSHAKE_SECONDS,
            inbound_upgrade_timeout=inbound.HANDSHAKE_SECONDS,
            outbound_upgrade_timeout=inbound.HANDSHAKE_SECONDS,
            inbound_stream_protocol_negotiation_timeout=inbound.HANDSHAKE_SECONDS,
            outbound_stream_protocol_negotiation_timeout=inbound.HANDSHAKE_SECONDS,
        ),
        addrs_factory=advertised,
        disable_identify_address_discovery=True,
    )
    _tie_down(host, dials=not defences.only_ours_dial)
    return host


def _most(defences: NetworkDefences) -> int:
    """The connections at which the library refuses. With eviction, `inbound` closes one first, for which there must be
    room.
    """
    return CONNECTIONS * 2 if defences.eviction else CONNECTIONS


def _limits(defences: NetworkDefences) -> ResourceManager:
    most = _most(defences)
    return ResourceManager(
        limits=ResourceLimits(max_connections=most * 2, max_streams=CONNECTIONS * defences.streams),
        connection_limits=ConnectionLimits(
            max_established_inbound=most if defences.eviction else most - defences.reserved_outbound,
            max_established_outbound=CONNECTIONS,
            max_established_per_peer=PER_PEER,
            max_established_total=most,
        ),
        # These would refuse all peers if one peer misbehaves or the learner needs memory.
        enable_memory_limits=False,
        enable_circuit_breaker=False,
        enable_graceful_degradation=False,
    )


def _tie_down(host: Any, *, dials: bool) -> None:
    """Switch off the automatic actions of the library, except dialling if `dials` is set."""
    swarm = host.get_network()
    swarm.retry_config = RetryConfig(max_retries=0)
    swarm.upgrader.muxer_multistream = BoundedMuxer()
    if not dials:
        swarm.dial_peer = partial(_dial_nobody, swarm)
    swarm.close_peer = partial(_close_peer, swarm)
    swarm.auto_connector.start = _do_nothing
    swarm.notifees.clear()  # one asks each peer to identify itself; the other rates peers for a pruner with no work
    host.remove_stream_handler(ID_PUSH)


async def _dial_nobody(_swarm: Any, peer_id: Any) -> Any:
    """Refuse to dial: only `dialer` chooses peers and addresses.

    If the node opens a stream to a peer that has just left, the library would dial the addresses in the peer's signed
    record.
    """
    raise SwarmException(f"not connected to {peer_id}")


async def _close_peer(swarm: Any, peer_id: Any, why: str = "the library closed it") -> None:
    """Close the connections of a peer.

    The library's function takes a while. It then forgets the connections that the peer opened meanwhile, which stay
    open.
    """
    for link in swarm.get_connections(peer_id):
        await close_link(link, why)
        swarm.remove_conn(link)


async def _do_nothing() -> None: ...


class Session:
    """Host and gossip of one session. `run` may be called once."""

    def __init__(
        self,
        seed: bytes,
        gossip: Gossip,
        *,
        listen: Sequence[str],
        announce: Sequence[str],
        seen: Seen,
        followed: frozenset[str],
        requests: Requests | None,
        linked: Callable[[], None],
        gone: Callable[[str, str], None],
        brought: Callable[[str], int],
    ) -> None:
        """`announce` replaces the addresses that are derived from `listen`, unless it is empty."""
        self._listen = listen
        self._announce = announce
        self._gossip = gossip
        self._followed = followed
        self._linked = linked
        self._gone = gone
        self._tcp = TrackedTcp(self._accept)
        self._expanded: tuple[tuple[str, ...], float, list[Any]] | None = None
        self.bound: tuple[str, ...] = ()
        self._mapped = ""
        self.host = build_host(seed, self._tcp, self._advertised, gossip.defences)
        self.swarm = self.host.get_network()
        self.swarm.register_notifee(self)
        key = SigningKey(seed)
        self.machine = Machine(
            Author(bytes(key.verify_key), lambda data: key.sign(data).signature, time.time_ns()),
            {topic.encode(): channel.max_bytes for topic, channel in gossip.channels.items()},
            seen=seen,
            rng=random.Random(),  # noqa: S311 - no peer sees what it draws
            defences=gossip.defences,
        )
        self._records = PeerRecords(self.host)
        self._streams = GossipStreams(self.host, self.machine, self._records, gossip)
        self.relay = Relay(self.host, payer=self._payer)
        self.hole_punching = HolePunching(self.host, self)
        self.autonat = AutoNat(self.host, check=self.check, sources=self.sources, payer=self._payer)
        self._asking = Asking(self.host, requests) if requests else None
        self.inbound = Inbound(
            self.swarm,
            CONNECTIONS,
            gossip.defences,
            refuses=self.refuses,
            offended=gossip.offended,
            follows=self.followed_by,
            brought=brought,
        )

    async def _accept(self, socket: Any) -> None:
        await self.inbound.take_connection(socket)

    def _advertised(self, bound: list[Any]) -> list[Any]:
        if self._announce:
            return [Multiaddr(address) for address in self._announce]
        # The library calls this with every RPC, and the interfaces of this machine seldom change.
        asked = tuple(str(address) for address in bound)
        if self._expanded is None or self._expanded[0] != asked or trio.current_time() > self._expanded[1]:
            found = [Multiaddr(address) for address in (self._mapped, *addresses.expand(asked)) if address]
            self._expanded = (asked, trio.current_time() + INTERFACES_SECONDS, found)
        return self._expanded[2]

    def announce_mapped(self, outer: str) -> None:
        """Announce the outer address that a router forwards to this node before the others; none if it is empty."""
        self._mapped = outer
        self._expanded = None

    @property
    def advertised(self) -> tuple[str, ...]:
        """Full dialable addresses, which end in our peer id."""
        return tuple(str(address) for address in self.host.get_addrs())

    async def run(self, ready: Callable[[], None], stop: trio.Event) -> None:
        """Serve until `stop` is set. Then close the connections, the gossip services and the host, in this order.

        Raises any error of the library unchanged, and OSError if the node cannot listen on an address.
        """
        try:
            await self._run(ready, stop)
        finally:
            await self._tcp.give_up()

    async def _run(self, ready: Callable[[], None], stop: trio.Event) -> None:
        listen = [Multiaddr(address) for address in self._listen]
        async with self.host.run(listen_addrs=listen):
            self.bound = tuple(str(address) for address in self.host.get_transport_addrs())
            if len(self.bound) < len(listen):
                raise OSError(f"listening on {', '.join(self._listen)} failed")
            async with trio.open_nursery() as nursery:
                self.follow(self._followed)
                await nursery.start(self._streams.run)
                ready()
                await stop.wait()
                await self._close_connections()
                nursery.cancel_scope.cancel()

    async def _close_connections(self) -> None:
        with trio.move_on_after(CLOSE_SECONDS):
            async with trio.open_nursery() as nursery:
                for peer_id in list(self.swarm.connections):
                    nursery.start_soon(self.disconnect, str(peer_id), "this node stops")

    async def publish(self, topic: str, data: bytes) -> None:
        """Send a message of this node. Lets other tasks run, so that many messages at once do not fill the queues."""
        self._streams.perform(self.machine.publish(topic.encode(), data, trio.current_time()))
        await trio.lowlevel.checkpoint()

    def follow(self, topics: Collection[str]) -> None:
        """Follow these topics and no others."""
        names = frozenset(topic.encode() for topic in topics)
        self._streams.perform(self.machine.follow(names, trio.current_time()))

    def refuses(self, peer_id: str) -> bool:
        """Return whether the node refuses a peer because it flooded lately."""
        return self.machine.refuses(peer_id, trio.current_time())

    def followers(self, topic: str) -> int:
        """The number of connected peers that follow a topic."""
        return len(self.machine.topics[topic.encode()].followers)

    def followed_by(self, peer_id: str) -> frozenset[str]:
        """The topics of this node that a connected peer follows."""
        peer = self.machine.peers.get(peer_id)
        return frozenset(topic.decode() for topic in peer.follows) if peer else frozenset()

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        if self._asking is None:
            raise AskFailed("this network sends no requests")
        return await self._asking.ask(peer_id, request)

    async def check(self, peer_id: str, address: str) -> None:
        """Dial a connected peer at an address, and close that connection. Raises any error of the library."""
        link = await self.swarm.dial_addr(Multiaddr(f"{address}/p2p/{peer_id}"), ID.from_string(peer_id))
        await close_link(link, "it answered at its address, which is all that was asked")

    async def dial(self, peer_id: str, address: str) -> None:
        places = await addresses.resolve(address)
        for place in places[:-1]:
            try:
                await self._dial_place(peer_id, place)
            except SwarmException:
                continue
            return
        await self._dial_place(peer_id, places[-1])

    async def _dial_place(self, peer_id: str, place: str) -> None:
        await self.swarm.dial_addr(Multiaddr(f"{place}/p2p/{peer_id}"), ID.from_string(peer_id))

    async def disconnect(self, peer_id: str, why: str) -> None:
        await self.swarm.close_peer(ID.from_string(peer_id), why)

    def is_linked(self, peer_id: str) -> bool:
        return bool(self.swarm.get_connections(ID.from_string(peer_id)))

    def linked(self) -> frozenset[str]:
        """Peers of any swarm with an open connection."""
        live = (peer for peer, links in self.swarm.connections.items() if any(not link.is_closed for link in links))
        return frozenset(str(peer) for peer in live)

    def outbound(self, peer_id: str) -> bool:
        """Return whether we dialled a connected peer."""
        return self._streams.dialled(ID.from_string(peer_id))

    def sources(self, peer_id: str) -> list[str]:
        """The IP addresses that a peer is connected from."""
        links = self.swarm.get_connections(ID.from_string(peer_id))
        return [source for source in dict.fromkeys(map(_source, links)) if source]

    def recorded(self, peer_id: str) -> tuple[str, ...]:
        """The dialable addresses in the signed record of a connected peer."""
        try:
            known = self.swarm.peerstore.addrs(ID.from_string(peer_id))
        except KeyError:  # the library's error for a peer without a record
            known = []
        texts = (addresses.text_of(address).partition("/p2p/")[0] for address in known)
        return tuple(text for text in dict.fromkeys(texts) if addresses.is_dialable(text))

    # Hole punching.

    def admits(self, peer_id: str) -> bool:
        """Return whether a peer may connect."""
        return self._gossip.admit(peer_id)

    def possible_relays(self) -> list[str]:
        """The peers at which to reserve: those that we dialled, unless the operator announces an address.

        Only the operator is believed. A router may forward to an address that is not of the Internet, and a firewall
        may let only answers in.
        """
        if self._announce or not any(map(self._port, (4, 6))):
            return []
        return [peer for peer in self.linked() if self.outbound(peer)]

    def outer_addresses(self, seen: str) -> list[str]:
        """The address that a router forwards to us, our listening port at the IP address that a peer sees, and our own
        addresses of the Internet.
        """
        version = ipaddress.ip_address(seen).version if seen else 0
        at = [f"/ip{version}/{seen}/tcp/{port}"] if (port := self._port(version)) else []
        own = [each.rpartition("/p2p/")[0] for each in self.advertised if addresses.public_block_of(each)]
        return list(dict.fromkeys([*filter(None, [self._mapped]), *at, *own]))

    def _port(self, version: int) -> int:
        """The port at which we listen for other machines by this version of IP; 0 if at none."""
        return addresses.listening_port(self.bound, version)

    async def reachability(self, peer_id: str) -> Reachability:
        """Ask a connected peer how it sees this node. Raises any error of the library."""
        seen, remote = await seen_by(self.host, peer_id)
        host = addresses.canonical(addresses.host_of(seen))
        # The peer dials only at the IP address that it sees.
        outer = (each for each in self.outer_addresses(host) if addresses.host_of(each) == host)
        asked = tuple(self._announce or outer)
        is_dialled = bool(asked) and await self.autonat.ask(peer_id, asked)
        return Reachability(seen, self._local_port(remote), asked, is_dialled)

    def _local_port(self, remote: tuple[str, int]) -> int:
        """The port of this machine that is connected to the IP address and port of a peer; 0 if none is."""
        sockets = (each.stream.socket for each in self._tcp.opened if each.get_remote_address() == remote)
        return next((each.getsockname()[1] for each in sockets if each.fileno() != -1), 0)

    async def dial_from_listening_port(self, peer_id: str, address: str, *, as_server: bool) -> None:
        """Dial an IP address once, from the port that we listen on."""
        host, version = ("::", 6) if address.startswith("/ip6/") else ("0.0.0.0", 4)  # noqa: S104 - the kernel chooses
        dial = self.swarm.dial_addr_as_responder if as_server else self.swarm.dial_addr
        await dial(Multiaddr(address), ID.from_string(peer_id), (host, self._port(version)))

    def block(self, peer_id: str) -> str:
        """The address block of the Internet in which a connected peer is; empty if it is in none."""
        return next(filter(None, map(addresses.public_block_of, self.sources(peer_id))), "")

    def _payer(self, peer_id: str) -> str:
        """The origin that budgets for all peers charge: the address block of a peer, or the peer if it is in none."""
        return self.block(peer_id) or peer_id

    # Callbacks of the swarm.

    async def connected(self, _network: Any, link: Any) -> None:
        peer_id = str(link.muxed_conn.peer_id)
        if self._gossip.admit(peer_id):
            self._streams.connected(link)
            self._linked()
        else:
            await self.disconnect(peer_id, NOT_ADMITTED)

    async def disconnected(self, _network: Any, link: Any) -> None:
        self._streams.disconnected(link)
        identity, why = link.muxed_conn.peer_id, link.muxed_conn.why_closed
        if why:
            log.info("closed a connection with %s: %s", identity, why)
        else:
            log.info("a connection with %s was closed by the peer, or the network broke it", identity)
        if str(identity) not in self.linked():
            self.swarm.auto_connector.clear_cooldown(identity)  # else the library keeps each key that ever left
            self._records.forget(identity)
            self.relay.left(str(identity))
            self.hole_punching.left(str(identity))
            self._gone(str(identity), why)

    async def opened_stream(self, network: Any, stream: Any) -> None: ...

    async def closed_stream(self, network: Any, stream: Any) -> None: ...

    async def listen(self, network: Any, address: Any) -> None: ...

    async def listen_close(self, network: Any, address: Any) -> None: ...


def _source(link: Any) -> str:
    """The IP address at the other end of a connection; empty if the connection has ended."""
    remote = link.muxed_conn.get_remote_address()
    return addresses.canonical(str(remote[0])) if remote else ""
