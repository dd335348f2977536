"""One session of the libp2p host: it is built, runs until it fails or is stopped, and is not used again.

Gossip is GossipSub 1.1 with this project's score. The library's adaptive and spam features are off.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import trio
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from sapo_node.net import addresses, host, patches
from sapo_node.net.host import TrackedTcp
from sapo_node.net.inbound import NOT_ADMITTED, Inbound, Limits, close_link
from sapo_node.net.interface import AskFailed, Requests
from sapo_node.net.pubsub import Gossip, HardenedGossipSub, HardenedPubsub
from sapo_node.net.request_response import Asking

log = logging.getLogger(__name__)

DEGREE, DEGREE_LOW, DEGREE_HIGH = 6, 4, 10  # mesh peers: the target; below LOW and above HIGH the mesh is changed
GOSSIP_WINDOW = 3  # heartbeats for which a message is offered to peers outside of the mesh
START_SECONDS = 30.0
CLOSE_SECONDS = 2.0
INTERFACES_SECONDS = 60.0  # from one look at the addresses of this machine to the next


@dataclass(frozen=True, slots=True)
class Listening:
    """The addresses that one session listens on and announces."""

    listen: tuple[str, ...]
    announce: tuple[str, ...]
    """If not empty, replaces the addresses that are derived from `listen`."""


class Service:
    """Host, router and gossip of one session. `run` may be called once."""

    def __init__(
        self,
        seed: bytes,
        where: Listening,
        gossip: Gossip,
        *,
        followed: frozenset[str],
        requests: Requests | None,
        linked: Callable[[], None],
        gone: Callable[[str, str], None],
        brought: Callable[[str], int],
    ) -> None:
        self._where = where
        self._gossip = gossip
        self._followed = followed
        self._linked = linked
        self._gone = gone
        self._tcp = TrackedTcp()
        self._expanded: tuple[tuple[str, ...], float, list[Any]] | None = None
        self.bound: tuple[str, ...] = ()
        self.host = host.build_host(seed, self._tcp, self._advertised, gossip.defences)
        self.swarm = self.host.get_network()
        self.swarm.register_notifee(self)
        self.router = HardenedGossipSub(
            defences=gossip.defences,
            protocols=[PROTOCOL_ID_V11],
            degree=DEGREE,
            degree_low=DEGREE_LOW,
            degree_high=DEGREE_HIGH,
            heartbeat_interval=1,
            heartbeat_initial_delay=0.2,
            gossip_window=GOSSIP_WINDOW,
            gossip_history=5,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
            max_pending_messages_per_peer=8,
        )
        self.pubsub = HardenedPubsub(self.host, self.router, gossip, counter=time.time_ns())
        self._asking = Asking(self.host, requests) if requests else None
        self.inbound = Inbound(
            self.swarm,
            Limits(
                connections=host.CONNECTIONS,
                reserved=gossip.defences.reserved_outbound,
                streams=gossip.defences.streams,
                eviction=gossip.defences.eviction,
            ),
            note=self._tcp.opened.add,
            refuses=self.router.refuses,
            offended=gossip.offended,
            follows=self.followed_by,
            brought=brought,
        )

    def _advertised(self, bound: list[Any]) -> list[Any]:
        if self._where.announce:
            return [Multiaddr(address) for address in self._where.announce]
        # The library calls this with every RPC, and the interfaces of this machine seldom change.
        asked = tuple(str(address) for address in bound)
        if self._expanded is None or self._expanded[0] != asked or trio.current_time() > self._expanded[1]:
            found = [Multiaddr(address) for address in addresses.expand(asked)]
            self._expanded = (asked, trio.current_time() + INTERFACES_SECONDS, found)
        return self._expanded[2]

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
                    await self.follow(self._followed)
                ready()
                await stop.wait()
                await self._close_connections()

    async def _close_connections(self) -> None:
        with trio.move_on_after(CLOSE_SECONDS):
            async with trio.open_nursery() as nursery:
                for peer_id in list(self.swarm.connections):
                    nursery.start_soon(self.disconnect, str(peer_id), "this node stops")

    async def publish(self, topic: str, data: bytes) -> None:
        await self.pubsub.publish(topic, data)

    async def follow(self, topics: Collection[str]) -> None:
        """Follow these topics and no others."""
        for topic in set(self.pubsub.topic_ids) - set(topics):
            await self.pubsub.unsubscribe(topic)
        for topic in sorted(set(topics) - set(self.pubsub.topic_ids)):
            await self.pubsub.subscribe(topic)

    def followers(self, topic: str) -> int:
        """The number of connected peers that follow a topic."""
        return len(self.pubsub.peer_topics.get(topic, ()))

    def followed_by(self, peer_id: str) -> frozenset[str]:
        """The topics of this node that a connected peer follows."""
        identity = ID.from_string(peer_id)
        follow = self.pubsub.peer_topics
        return frozenset(topic for topic in self._gossip.seen_caches if identity in follow.get(topic, ()))

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
        links = self.swarm.get_connections(ID.from_string(peer_id))
        return bool(links) and links[0].direction.name == "OUTBOUND"

    def sources(self, peer_id: str) -> list[str]:
        """The IP addresses that a peer is connected from."""
        links = self.swarm.get_connections(ID.from_string(peer_id))
        return [source for source in dict.fromkeys(map(_source, links)) if source]

    def places(self, peer_id: str, answered: str) -> tuple[tuple[str, ...], bool]:
        """The addresses at which a connected peer can be dialled, and whether nothing but its word is behind them.

        `answered` is the address at which we dialled it; empty if it dialled us.
        """
        identity = ID.from_string(peer_id)
        try:
            known = self.swarm.peerstore.addrs(identity)
        except KeyError:  # the library's error for a peer without a record
            known = []
        record = (addresses.text_of(address).partition("/p2p/")[0] for address in known)
        texts = [text for text in (answered, *record) if text]
        if not self._gossip.defences.records_checked:
            return tuple(text for text in dict.fromkeys(texts) if addresses.is_dialable(text)), False
        return addresses.places_of(texts, self.sources(peer_id))

    def block(self, peer_id: str) -> str:
        """The address block of the Internet in which a connected peer is; empty if it is in none."""
        links = self.swarm.get_connections(ID.from_string(peer_id))
        return next((block for link in links if (block := addresses.public_block_of(_source(link)))), "")

    # Callbacks of the swarm.

    async def connected(self, _network: Any, link: Any) -> None:
        peer_id = str(link.muxed_conn.peer_id)
        if self._gossip.admit(peer_id):
            self._linked()
        else:
            await self.disconnect(peer_id, NOT_ADMITTED)

    async def disconnected(self, _network: Any, link: Any) -> None:
        self.pubsub.connection_ended(link)
        identity, why = link.muxed_conn.peer_id, link.muxed_conn.why_closed
        if why:
            log.info("closed a connection with %s: %s", identity, why)
        else:
            log.info("a connection with %s was closed by the peer, or the network broke it", identity)
        if str(identity) not in self.linked():
            patches.forget_record(self.host, identity)
            self._gone(str(identity), why)

    async def opened_stream(self, network: Any, stream: Any) -> None: ...

    async def closed_stream(self, network: Any, stream: Any) -> None: ...

    async def listen(self, network: Any, address: Any) -> None: ...

    async def listen_close(self, network: Any, address: Any) -> None: ...


def _source(link: Any) -> str:
    """The IP address at the other end of a connection; empty if the connection has ended."""
    remote = link.muxed_conn.get_remote_address()
    return addresses.canonical(str(remote[0])) if remote else ""
