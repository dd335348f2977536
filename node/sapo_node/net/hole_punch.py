"""Connects two peers that are both behind routers: they meet on a circuit of a relay, and then dial at the same time.

DCUtR over TCP: https://github.com/libp2p/specs/blob/master/relay/DCUtR.md. Each side dials from its listening port. Its
router then lets the other's packets in as answers (RFC 9293 section 3.5, simultaneous open). That fails if a router
takes another port for each destination (a symmetric NAT) and the other router lets in only answers.

A circuit carries DCUtR and nothing else, and is never a connection of the host. So no message and no request passes
through a circuit, every connection has the IP address of its peer, and no rule about peers needs to know of relays. Two
peers that cannot be connected trade through the peers that they share.

A node behind a router reserves at each peer that it dialled. That peer then names it in peer exchange (spec PULL-8).
The addresses in DCUtR are the word of the other side. So the node dials at most ADDRESSES of them, only addresses of
the Internet, each ATTEMPTS times at most, and meets MEETINGS_RATE peers a second through one relay. At most MOST_MET
connections come about so. A relay that brings its own peers can take these and no others.
"""

import logging
import random
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio
from libp2p.custom_types import TProtocol
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.protocol_muxer.multiselect import Multiselect
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.relay.circuit_v2.pb import circuit_pb2
from libp2p.relay.circuit_v2.pb.circuit_pb2 import HopMessage, StopMessage
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch
from multiaddr import Multiaddr

from sapo_node.net import addresses
from sapo_node.net.inbound import ProtocolBroken, quietly, shielded
from sapo_node.net.reachability import seen_by
from sapo_node.net.relay import HOP, STOP, read_message, write_message
from sapo_node.processes.bounded import Bounded
from sapo_node.processes.link_budget import LinkBudget

log = logging.getLogger(__name__)

DCUTR = TProtocol("/libp2p/dcutr")

ADDRESSES = 2  # of a peer that are dialled
AT_ONCE = 4  # peers that the node meets at one time
MOST_MET = 8  # connected peers that it met
MEETING_SECONDS = 16.0  # from the request for a circuit to the end
DIAL_SECONDS = 8.0
ATTEMPTS = 8  # at an address, which may be that of a third machine
RETRY_SECONDS = 0.3  # between two attempts
HEAD_START_SECONDS = 0.25
"""The peer that asked for the circuit dials first, so that its packet has left before that of the other comes."""
SERVER_SECONDS = 3.0  # for one attempt as the server of the handshake, which takes five round trips
LOOK_SECONDS = 0.05
RESERVE_SECONDS = 1.0  # between two looks for a peer at which to reserve
AGAIN_SECONDS = 600.0  # after dialling failed
FAILURES = 1_024  # that are remembered
MEETINGS_RATE, MEETINGS_BURST = 0.1, 8.0
"""Peers per second, and at once, that the node meets through one relay."""
ALL_MEETINGS_RATE, ALL_MEETINGS_BURST = 0.3, 16.0


class Host(Protocol):
    """The connections of this node, as far as they are needed here."""

    def is_linked(self, peer_id: str) -> bool: ...

    def admits(self, peer_id: str) -> bool: ...

    def possible_relays(self) -> Collection[str]:
        """Return the connected peers at which to reserve; none if this node knows that peers can dial it."""

    def outer_addresses(self, seen: str) -> Sequence[str]:
        """Return where our listening port may be reached. `seen` is our IP address as a peer sees it; may be empty."""

    async def dial_from_listening_port(self, peer_id: str, address: str, *, as_server: bool) -> None: ...


class HolePunching:
    """Both sides of hole punching, on one libp2p host."""

    def __init__(self, libp2p_host: Any, host: Host) -> None:
        self._libp2p = libp2p_host
        self._own_id = str(libp2p_host.get_id())
        self._host = host
        self._upgrader = libp2p_host.get_network().upgrader
        self._relays: dict[str, str] = {}
        """By connected peer that was asked for a reservation: our IP address as it sees it. Empty if it refused."""
        self._meeting: list[str] = []
        """The peers that the node meets now. A peer is in it twice if both sides asked for a circuit."""
        self._met: set[str] = set()
        """The connected peers that the node met."""
        self._failed: Bounded[str, float] = Bounded(FAILURES)
        """By peer: until when it is not dialled again."""
        self._budget = LinkBudget(
            rate=MEETINGS_RATE, burst=MEETINGS_BURST, for_all=(ALL_MEETINGS_RATE, ALL_MEETINGS_BURST)
        )
        self._nursery: trio.Nursery | None = None
        libp2p_host.set_stream_handler(STOP, self._invited)

    async def run(self) -> None:
        """Reserve at relays until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                for relay in set(self._host.possible_relays()) - self._relays.keys():
                    self._relays[relay] = ""
                    self._nursery.start_soon(self._reserve, relay)
                await trio.sleep(RESERVE_SECONDS)

    def left(self, peer_id: str) -> None:
        """A peer is no longer connected."""
        self._relays.pop(peer_id, None)
        self._met.discard(peer_id)

    def meet(self, relay: str, peer_id: str) -> None:
        """Try to connect to a peer that a connected peer relays to, unless that failed within AGAIN_SECONDS."""
        if self._nursery and self._may_meet(relay, peer_id) and peer_id not in self._meeting:
            self._nursery.start_soon(self._ask_and_meet, relay, peer_id)

    def _may_meet(self, relay: str, peer_id: str) -> bool:
        now = trio.current_time()
        return (
            bool(self._relays.get(relay))
            and len(self._meeting) < AT_ONCE
            and len(self._met) + len(self._meeting) < MOST_MET
            and self._host.admits(peer_id)
            and not self._host.is_linked(peer_id)
            and now >= self._failed.get(peer_id, 0.0)
            and self._budget.take(relay, now)
        )

    async def _reserve(self, relay: str) -> None:
        try:
            stream = await self._ask(relay, HopMessage(type=HopMessage.RESERVE))
            await quietly(stream.close)
            seen, _ = await seen_by(self._libp2p, relay)
        except Exception as error:  # noqa: BLE001 - the library raises many errors; this peer is then no relay
            log.debug("%s gives no reservation: %r", relay, error)
            return
        if relay in self._relays:
            self._relays[relay] = addresses.canonical(addresses.host_of(seen))

    async def _ask(self, relay: str, request: HopMessage) -> Any:
        """Send a request to a relay, and return the stream if the relay says OK."""
        stream = await self._libp2p.new_stream(ID.from_string(relay), [HOP])
        granted = False
        try:
            await write_message(stream, request)
            granted = (await read_message(stream, HopMessage)).status == circuit_pb2.OK
        finally:
            if not granted:
                await shielded(stream.reset)
        if not granted:
            raise ProtocolBroken("refused")
        return stream

    async def _ask_and_meet(self, relay: str, peer_id: str) -> None:
        request = HopMessage(type=HopMessage.CONNECT)
        request.peer.id = ID.from_string(peer_id).to_bytes()
        self._meeting.append(peer_id)
        try:
            with trio.move_on_after(MEETING_SECONDS):
                stream = await self._ask(relay, request)
                await self._meet(stream, relay, peer_id, invited=False)
        except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a circuit that failed
            log.debug("no circuit to %s through %s: %r", peer_id, relay, error)
        finally:
            self._meeting.remove(peer_id)

    async def _invited(self, stream: Any) -> None:
        """Meet a peer that a relay brings. Nobody is charged: the relay may not know what its guests do."""
        relay = str(stream.muxed_conn.peer_id)
        offer = await read_message(stream, StopMessage)
        peer_id = str(ID(offer.peer.id))
        # If both sides asked, the circuit that the peer with the smaller id asked for remains.
        is_theirs = peer_id not in self._meeting or peer_id < self._own_id
        if not (offer.type == StopMessage.CONNECT and is_theirs and self._may_meet(relay, peer_id)):
            await write_message(stream, _answer(circuit_pb2.RESOURCE_LIMIT_EXCEEDED))
            await quietly(stream.close)
            return
        self._meeting.append(peer_id)
        try:
            await write_message(stream, _answer(circuit_pb2.OK))
            with trio.move_on_after(MEETING_SECONDS):
                await self._meet(stream, relay, peer_id, invited=True)
        finally:
            self._meeting.remove(peer_id)

    async def _meet(self, stream: Any, relay: str, peer_id: str, *, invited: bool) -> None:
        """Agree with a peer on a circuit, and dial. Errors are only logged: success is a connection."""
        try:
            async with self._circuit(stream, peer_id, initiator=not invited) as circuit:
                ours = self._host.outer_addresses(self._relays.get(relay, ""))
                agree = _agree_as_invited if invited else _agree_as_guest
                theirs = await agree(circuit, ours)
            await self._dial(peer_id, theirs, as_server=invited)
        except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a failed attempt
            log.debug("meeting %s through %s failed: %r", peer_id, relay, error)
        finally:
            await shielded(stream.reset)

    @asynccontextmanager
    async def _circuit(self, stream: Any, peer_id: str, *, initiator: bool) -> AsyncIterator[Any]:
        """A muxed connection on a circuit, outside of the host. Its other end has proved that it is the peer."""
        identity = ID.from_string(peer_id)
        secured = await self._upgrader.upgrade_security(RawConnection(stream, initiator), initiator, identity)
        if secured.get_remote_peer() != identity:
            raise ProtocolBroken("another peer is on the circuit")
        muxed = await self._upgrader.upgrade_connection(secured, identity)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(muxed.start)
            await muxed.event_started.wait()
            yield muxed
            nursery.cancel_scope.cancel()

    async def _dial(self, peer_id: str, theirs: Sequence[str], *, as_server: bool) -> None:
        """Dial all addresses until there is a connection, at most DIAL_SECONDS.

        The two connections may become one, on which neither side is the one that accepted. So the roles are fixed: the
        invited peer is the server of the handshake (`as_server`). If instead the other side's listener accepts, both
        sides are the server, and none speaks. So the invited peer dials as the client every other time.
        """

        async def knock(address: str) -> None:
            for turn in range(ATTEMPTS):
                is_server = as_server and not turn % 2
                try:
                    with trio.move_on_after(SERVER_SECONDS if is_server else DIAL_SECONDS):
                        await self._host.dial_from_listening_port(peer_id, address, as_server=is_server)
                except Exception as error:  # noqa: BLE001 - the library raises many errors; each is a failed dial
                    log.debug("%s does not answer at %s: %r", peer_id, address, error)
                await trio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - jitter

        with trio.move_on_after(DIAL_SECONDS) as late:
            async with trio.open_nursery() as nursery:
                for address in theirs:
                    nursery.start_soon(knock, address)
                while not self._host.is_linked(peer_id):  # noqa: ASYNC110 - the peer's packet may open it, too
                    await trio.sleep(LOOK_SECONDS)
                self._met.add(peer_id)
                nursery.cancel_scope.cancel()
        if late.cancelled_caught:
            self._failed[peer_id] = trio.current_time() + AGAIN_SECONDS
            log.info("no direct connection with %s: no address of it answered, and it reached none of ours", peer_id)


async def _agree_as_invited(circuit: Any, ours: Sequence[str]) -> list[str]:
    """Return the peer's addresses at the moment to dial: half a round trip after SYNC was sent."""
    stream = await circuit.open_stream()
    await MultiselectClient().select_one_of([DCUTR], MultiselectCommunicator(stream))
    sent = trio.current_time()
    await write_message(stream, _connect(ours))
    theirs = _addresses(await read_message(stream, HolePunch))
    round_trip = trio.current_time() - sent
    await write_message(stream, HolePunch(type=HolePunch.SYNC))
    await trio.sleep(min(round_trip / 2, 1.0) + HEAD_START_SECONDS)
    return theirs


async def _agree_as_guest(circuit: Any, ours: Sequence[str]) -> list[str]:
    """Return the peer's addresses at the moment to dial: when SYNC comes."""
    stream = await circuit.accept_stream()
    await Multiselect({DCUTR: None}).negotiate(MultiselectCommunicator(stream))
    theirs = _addresses(await read_message(stream, HolePunch))
    await write_message(stream, _connect(ours))
    if (await read_message(stream, HolePunch)).type != HolePunch.SYNC:
        raise ProtocolBroken("no SYNC")
    return theirs


def _answer(status: Any) -> StopMessage:
    return StopMessage(type=StopMessage.STATUS, status=status)


def _connect(ours: Sequence[str]) -> HolePunch:
    return HolePunch(type=HolePunch.CONNECT, ObsAddrs=[Multiaddr(each).to_bytes() for each in ours])


def _addresses(message: HolePunch) -> list[str]:
    """The addresses in a CONNECT that may be dialled, at most ADDRESSES."""
    if message.type != HolePunch.CONNECT:
        raise ProtocolBroken("no CONNECT")
    texts = [addresses.text_of(Multiaddr(each)) for each in message.ObsAddrs[:8]]
    public = [text for text in texts if addresses.is_dialable(text) and addresses.public_block_of(text)]
    return list(dict.fromkeys(public))[:ADDRESSES]
