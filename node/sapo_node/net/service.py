"""One life of the libp2p host: built, run until it fails or is stopped, and then thrown away.

Settings follow the measurements of py-libp2p 0.8.1: noise and yamux only, GossipSub 1.1 with its own penalties,
adaptive and spam features off. What the library does on its own behalf and we do ourselves is switched off:
dialling whoever it heard of, asking every peer to identify itself (in tasks whose failure ends the process), and
taking such reports unasked.
"""

import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from libp2p import YAMUX_PROTOCOL_ID, Yamux, new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.host.basic_host import _IdentifyNotifee
from libp2p.host.exceptions import StreamFailure
from libp2p.identity.identify_push.identify_push import ID_PUSH
from libp2p.io.exceptions import IOException
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.protocol_muxer.exceptions import MultiselectError
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.rcmgr.connection_limits import ConnectionLimits
from libp2p.rcmgr.manager import ResourceLimits, ResourceManager
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.tools.anyio_service import background_trio_service
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr

from sapo_node.net import addresses, patches
from sapo_node.net.hardened import Gossip, HardenedGossipSub, HardenedPubsub

log = logging.getLogger(__name__)

CONNECTIONS = 64
RESERVED_OUTBOUND = 8  # of them, kept free of whoever dials us
PER_PEER = 3  # two nodes that dial each other at once hold two for a moment
STREAMS = 32  # inbound, of one peer, over all protocols
HANDSHAKES = 16  # unfinished, from one address
HANDSHAKE_SECONDS = 5.0
SHUN_SECONDS = 60.0  # an address may be shared by honest peers, who can still be dialled
START_SECONDS = 30.0
CLOSE_SECONDS = 2.0
INTERFACES_SECONDS = 60.0  # how long the addresses of this machine are taken as unchanged

patches.apply()


@dataclass(frozen=True, slots=True)
class Listening:
    """Where one life of the host listens and what it says about that."""

    listen: tuple[str, ...]
    announce: tuple[str, ...]
    """Replaces what is derived from `listen` when not empty."""


class TrackedTcp(TCP):  # type: ignore[misc]
    """TCP that knows its sockets: the library leaves them open when it fails, or has no time to close them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.listeners: list[Any] = []

    def create_listener(self, handler_function: Any) -> Any:
        self.listeners.append(super().create_listener(handler_function))
        return self.listeners[-1]

    def give_up(self) -> None:
        """Close them all. A listener left behind would take connections from the one of the next life."""
        for stream in list(self.opened):
            stream.stream.socket.close()
        for listener in self.listeners:
            if listener._nursery is not None:  # noqa: SLF001 - closing its sockets under it would end the process
                listener._nursery.cancel_scope.cancel()  # noqa: SLF001

    async def dial(self, maddr: Any) -> Any:
        raw = await super().dial(maddr)
        self.opened.add(raw.stream)
        return raw


class Service:
    """Host, router and gossip of one life. `run` may be called once."""

    def __init__(
        self,
        seed: bytes,
        where: Listening,
        gossip: Gossip,
        *,
        linked: Callable[[], None],
        gone: Callable[[str], None],
    ) -> None:
        self._where = where
        self._gossip = gossip
        self._linked = linked
        self._gone = gone
        self._streams: Counter[str] = Counter()
        self._handshakes: Counter[str] = Counter()
        self._shunned: dict[str, float] = {}
        """Until when no connection is taken, by IP address."""
        self._tcp = TrackedTcp()
        self._expanded: tuple[tuple[str, ...], float, list[Any]] | None = None
        self.bound: tuple[str, ...] = ()
        self.host = self._build_host(seed)
        self.swarm = self.host.get_network()
        self._contain()
        self.router = HardenedGossipSub(
            protocols=[PROTOCOL_ID_V11],
            degree=6,
            degree_low=4,
            degree_high=10,
            heartbeat_interval=1,
            heartbeat_initial_delay=0.2,
            gossip_window=3,
            gossip_history=5,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
            max_pending_messages_per_peer=8,
        )
        self.pubsub = HardenedPubsub(self.host, self.router, gossip, counter=time.time_ns())

    def _build_host(self, seed: bytes) -> Any:
        key_pair = create_new_key_pair(seed)
        noise = NoiseTransport(key_pair, noise_privkey=create_noise_key_pair().private_key)
        manager = ResourceManager(
            limits=ResourceLimits(max_connections=CONNECTIONS * 2, max_streams=CONNECTIONS * STREAMS),
            connection_limits=ConnectionLimits(
                max_established_inbound=CONNECTIONS,
                max_established_outbound=CONNECTIONS,
                max_established_per_peer=PER_PEER,
                max_established_total=CONNECTIONS,
            ),
            # These would refuse everybody when one peer misbehaves or the learner needs memory.
            enable_memory_limits=False,
            enable_circuit_breaker=False,
            enable_graceful_degradation=False,
        )
        return new_host(
            key_pair=key_pair,
            sec_opt={NOISE: noise},  # without it the host also accepts plaintext
            muxer_opt={YAMUX_PROTOCOL_ID: Yamux},
            transports=[self._tcp],
            resource_manager=manager,
            connection_config=ConnectionConfig(
                max_connections=CONNECTIONS,
                min_connections=RESERVED_OUTBOUND,
                low_watermark=RESERVED_OUTBOUND,
                high_watermark=CONNECTIONS,
                max_connections_per_peer=PER_PEER,
                dial_timeout=HANDSHAKE_SECONDS,
                inbound_upgrade_timeout=HANDSHAKE_SECONDS,
                outbound_upgrade_timeout=HANDSHAKE_SECONDS,
                inbound_stream_protocol_negotiation_timeout=HANDSHAKE_SECONDS,
                outbound_stream_protocol_negotiation_timeout=HANDSHAKE_SECONDS,
            ),
            addrs_factory=self._advertised,
            disable_identify_address_discovery=True,
        )

    def _advertised(self, bound: list[Any]) -> list[Any]:
        if self._where.announce:
            return [Multiaddr(address) for address in self._where.announce]
        # The library asks with every RPC; the interfaces of this machine change seldom.
        asked = tuple(str(address) for address in bound)
        if self._expanded is None or self._expanded[0] != asked or trio.current_time() > self._expanded[1]:
            found = [Multiaddr(address) for address in addresses.expand(asked)]
            self._expanded = (asked, trio.current_time() + INTERFACES_SECONDS, found)
        return self._expanded[2]

    def _contain(self) -> None:
        """Switch off what the library would do on its own, and catch what its handlers raise."""
        self.swarm.retry_config = RetryConfig(max_retries=0)
        self.swarm.dial_peer = partial(_dial_nobody, self.swarm)
        self.swarm.close_peer = partial(_close_peer, self.swarm)
        self.swarm.auto_connector.start = _do_nothing
        for notifee in [found for found in self.swarm.notifees if isinstance(found, _IdentifyNotifee)]:
            self.swarm.remove_notifee(notifee)
        self.host.remove_stream_handler(ID_PUSH)
        self.swarm.register_notifee(self)
        self._negotiate = self.swarm.common_stream_handler
        self.swarm.set_stream_handler(self._take_stream)
        self.swarm._do_handle_inbound_connection = self._take_connection  # noqa: SLF001 - it never frees its slot

    @property
    def advertised(self) -> tuple[str, ...]:
        """Full dialable addresses, ending in our peer id."""
        return tuple(str(address) for address in self.host.get_addrs())

    async def run(self, ready: Callable[[], None], stop: trio.Event) -> None:
        """Serve until `stop` is set, then close in the order that the library survives best.

        Raises whatever the library raises, as it comes; OSError if an address cannot be listened on.
        """
        try:
            await self._run(ready, stop)
        finally:
            self._tcp.give_up()

    async def _run(self, ready: Callable[[], None], stop: trio.Event) -> None:
        listen = [Multiaddr(address) for address in self._where.listen]
        async with self.host.run(listen_addrs=listen):
            self.bound = tuple(str(address) for address in self.host.get_transport_addrs())
            if len(self.bound) < len(listen):
                raise OSError(f"listening on {', '.join(self._where.listen)} failed")
            async with background_trio_service(self.pubsub), background_trio_service(self.router):
                with trio.fail_after(START_SECONDS):
                    await self.pubsub.wait_until_ready()
                    for topic in self._gossip.judges:
                        await self.pubsub.subscribe(topic)
                ready()
                await stop.wait()
                await self._close_connections()

    async def _close_connections(self) -> None:
        with trio.move_on_after(CLOSE_SECONDS):
            async with trio.open_nursery() as nursery:
                for peer_id in list(self.swarm.connections):
                    nursery.start_soon(self.disconnect, str(peer_id))

    async def publish(self, topic: str, data: bytes) -> None:
        await self.pubsub.publish(topic, data)

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

    async def disconnect(self, peer_id: str) -> None:
        await self.host.disconnect(ID.from_string(peer_id))

    def linked(self) -> frozenset[str]:
        """Peers with a live connection, whatever swarm they follow."""
        live = (peer for peer, links in self.swarm.connections.items() if any(not link.is_closed for link in links))
        return frozenset(str(peer) for peer in live)

    def route(self, peer_id: str) -> tuple[tuple[str, ...], bool]:
        """(dialable addresses of a connected peer, whether we dialled it), from its signed record.

        Only those at the place that it is connected from: a record may name anybody's.
        """
        identity = ID.from_string(peer_id)
        links = self.swarm.get_connections(identity)
        outbound = bool(links) and links[0].direction.name == "OUTBOUND"
        try:
            known = self.swarm.peerstore.addrs(identity)
        except KeyError:  # the library's error for a peer without a record
            known = []
        texts = dict.fromkeys(str(address).partition("/p2p/")[0] for address in known)
        sources = {_source(link) for link in links}
        return tuple(text for text in texts if addresses.is_dialable(text) and _is_at(text, sources)), outbound

    async def _take_stream(self, stream: Any) -> None:
        """Every inbound stream of every protocol starts here; nothing may escape into the connection."""
        peer_id = str(stream.muxed_conn.peer_id)
        if self._streams[peer_id] >= STREAMS:
            await _quietly(stream.reset)
            return
        self._streams[peer_id] += 1
        try:
            await self._negotiate(stream)
        except (IOException, StreamFailure, MultiselectError):
            await _quietly(stream.reset)
        except Exception as error:  # noqa: BLE001 - it would tear down the swarm
            self._gossip.offended(peer_id, f"broke a protocol handler: {type(error).__name__}")
            await _quietly(stream.reset)
        finally:
            self._streams[peer_id] -= 1
            if not self._streams[peer_id]:
                del self._streams[peer_id]

    async def _take_connection(self, socket: Any, listener: Any, _event: Any) -> None:
        """Upgrade an inbound connection and hold its slot while it lives.

        The library's own version waits for the end of the swarm, so that every connection ever taken keeps its
        slot and after a day of comings and goings nobody gets in.
        """
        remote = socket.get_remote_address()
        source = remote[0] if remote else ""
        if self._handshakes[source] >= HANDSHAKES:
            await _quietly(socket.close)
            return
        self._handshakes[source] += 1
        self._tcp.opened.add(socket)
        try:
            await self._let_in(source)
            muxed = await self.swarm.upgrade_inbound_raw_conn(RawConnection(socket, False), listener)
        except Exception as error:  # noqa: BLE001 - a stranger's failed handshake concerns nobody
            log.debug("handshake from %s failed: %r", source, error)
            await _quietly(socket.close)
            return
        finally:
            self._handshakes[source] -= 1
            if not self._handshakes[source]:
                del self._handshakes[source]
        if self.router.refuses(str(muxed.peer_id)):
            self._shun(source)
        for link in self.swarm.get_connections(muxed.peer_id):
            if link.muxed_conn is muxed:
                await link.event_closed.wait()

    async def _let_in(self, source: str) -> None:
        """Raises ConnectionRefusedError for a shunned address, and late: who is refused at once is back at once."""
        if trio.current_time() < self._shunned.get(source, 0.0):
            await trio.sleep(HANDSHAKE_SECONDS)
            raise ConnectionRefusedError(source)

    def _shun(self, source: str) -> None:
        """Take no connection from the address of a peer that floods: a handshake, to see who it is, costs more."""
        now = trio.current_time()
        self._shunned = {each: until for each, until in self._shunned.items() if until > now}
        self._shunned[source] = now + SHUN_SECONDS

    # What the swarm tells a notifee.

    async def connected(self, _network: Any, link: Any) -> None:
        peer_id = str(link.muxed_conn.peer_id)
        if self._gossip.admit(peer_id):
            self._linked()
        else:
            await self.disconnect(peer_id)

    async def disconnected(self, _network: Any, link: Any) -> None:
        identity = link.muxed_conn.peer_id
        if str(identity) not in self.linked():
            patches.forget_record(self.host, identity)
            self._gone(str(identity))

    async def opened_stream(self, network: Any, stream: Any) -> None: ...

    async def closed_stream(self, network: Any, stream: Any) -> None: ...

    async def listen(self, network: Any, address: Any) -> None: ...

    async def listen_close(self, network: Any, address: Any) -> None: ...


def _source(link: Any) -> str:
    """The IP address at the other end of a connection; empty when it has ended."""
    remote = link.muxed_conn.get_remote_address()
    return str(remote[0]) if remote else ""


def _is_at(text: str, sources: Collection[str]) -> bool:
    return addresses.host_of(text) in sources


async def _do_nothing() -> None: ...


async def _dial_nobody(_swarm: Any, peer_id: Any) -> Any:
    """Whom to dial, and where, our dialer decides.

    The library dials when it is asked for a stream to a peer that has just left, at whatever addresses the peer's
    signed record named.
    """
    raise SwarmException(f"not connected to {peer_id}")


async def _close_peer(swarm: Any, peer_id: Any) -> None:
    """Close the connections that a peer has.

    The library's own takes a while, and then strikes from the books what the peer opened meanwhile, which lives on.
    """
    for link in swarm.get_connections(peer_id):
        await _quietly(link.close)
        swarm.remove_conn(link)


async def _quietly(close: Callable[[], Any]) -> None:
    try:
        await close()
    except Exception as error:  # noqa: BLE001 - what is being closed is being given up
        log.debug("closing failed: %r", error)
