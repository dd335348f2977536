"""Drives the gossip machine over the streams of a host: reads the streams of peers, and keeps one of its own to each.

Our stream to a peer carries our subscriptions and all our gossip. Peers come back before their old connection has
ended, dial while they are dialled, answer late, and reset streams. So one task for each connected peer opens our
stream, writes to it until it ends, and opens the next one after a pause.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.peer.id import ID

from sapo_node.gossip.actions import Action, Ask, Disconnect, Foreign, Joined, Offended, Pause, Record, Wake
from sapo_node.gossip.machine import Machine
from sapo_node.gossip.rpc import PROTOCOL, Frames
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.inbound import NOT_ADMITTED, quietly, shielded
from sapo_node.net.interface import Admit, Channel
from sapo_node.net.peer_records import PeerRecords
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences
from sapo_protocol import RemoteError

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS, FIRST_HEARTBEAT_SECONDS = 1.0, 0.2
RECORD_SECONDS = 5.0  # from one look at our own addresses to the next
READ_BYTES = 65_536
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between two attempts to open our stream to a peer
STEADY_SECONDS = 60.0  # after so long without an attempt, the pause is FIRST_PAUSE again


@dataclass(frozen=True, slots=True)
class Gossip:
    """The callables and settings that the node gives to the gossip layer."""

    channels: Mapping[str, Channel]
    """By topic. The node uses no other topics."""
    admit: Admit
    offended: Callable[[str, str], None]
    """(peer id, cause): a peer broke the gossip protocol."""
    joined: Callable[[str], None]
    """(peer id): a peer announced that it follows a topic of ours."""
    foreign: Callable[[str, str], None]
    """(peer id, network id): a peer announced that it follows another swarm."""
    defences: NetworkDefences = NETWORK_DEFENDED


@dataclass(slots=True)
class OwnStream:
    """Our stream to one peer."""

    identity: Any
    stream: Any = None
    """None while it is not open."""
    waits: trio.Event = field(default_factory=trio.Event)
    """Set when something waits to be written."""
    returned: trio.Event = field(default_factory=trio.Event)
    """Set by a new connection, which ends the pause before the next attempt."""
    writing: trio.CancelScope = field(default_factory=trio.CancelScope)


class GossipStreams:
    """The driver of one machine on one host."""

    def __init__(self, host: Any, machine: Machine, records: PeerRecords, gossip: Gossip) -> None:
        self._host = host
        self._swarm = host.get_network()
        self._machine = machine
        self._records = records
        self._gossip = gossip
        self._own: dict[str, OwnStream] = {}
        self._numbers = count()
        self._nursery: trio.Nursery | None = None
        host.set_stream_handler(TProtocol(PROTOCOL), self._take_stream)

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. An error of the machine ends it."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._announce)
            nursery.start_soon(self._beat)
            for link in self._swarm.get_connections():
                if self._gossip.admit(str(link.muxed_conn.peer_id)):
                    self.connected(link)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # before it closes: connections come and go until the host has ended

    async def _announce(self) -> None:
        while True:
            self.perform(self._machine.announce(self._records.own()))
            await trio.sleep(RECORD_SECONDS)

    async def _beat(self) -> None:
        await trio.sleep(FIRST_HEARTBEAT_SECONDS)
        while True:
            self.perform(self._machine.heartbeat(trio.current_time()))
            await trio.sleep(HEARTBEAT_SECONDS)

    def perform(self, actions: Iterable[Action]) -> None:
        """Perform actions of the machine, of which none is an Ask or a Pause."""
        for action in actions:
            match action:
                case Wake(peer):
                    if own := self._own.get(peer):
                        own.waits.set()
                case Record(peer, record):
                    if not self._records.take(ID.from_string(peer), record):
                        self._gossip.offended(peer, "invalid peer record")
                case Joined(peer):
                    self._gossip.joined(peer)
                case Foreign(peer, network_id):
                    self._gossip.foreign(peer, network_id)
                case Offended(peer, cause):
                    self._gossip.offended(peer, cause)
                case Disconnect(peer, why):
                    self._disconnect(ID.from_string(peer), why)

    def _disconnect(self, identity: Any, why: str) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._swarm.close_peer, identity, why)

    # Connections.

    def connected(self, link: Any) -> None:
        """A connection with a peer began."""
        identity = link.muxed_conn.peer_id
        name = str(identity)
        self._machine.connected(name, outbound=self.dialled(identity))
        if name in self._own:
            self._own[name].returned.set()
        elif self._nursery is not None:
            self._own[name] = OwnStream(identity)
            self._nursery.start_soon(self._keep, name, self._own[name])

    def disconnected(self, link: Any) -> None:
        """A connection with a peer ended. Opens our stream again if it was on this one while the peer has another one.

        A peer that restarts is back before its old connection has ended.
        """
        identity = link.muxed_conn.peer_id
        name = str(identity)
        stays = self._is_connected(identity)
        if not stays:
            self._machine.gone(name)
        elif name in self._machine.peers:
            self._machine.connected(name, outbound=self.dialled(identity))
        own = self._own.get(name)
        if own and own.stream and (not stays or own.stream.muxed_conn is link.muxed_conn):
            own.writing.cancel()

    def _is_connected(self, identity: Any) -> bool:
        return any(not link.is_closed for link in self._swarm.get_connections(identity))

    def dialled(self, identity: Any) -> bool:
        """Return whether we dialled a peer."""
        return any(link.direction.name == "OUTBOUND" for link in self._swarm.get_connections(identity))

    # Our streams.

    async def _keep(self, name: str, own: OwnStream) -> None:
        """Keep a stream open to a connected peer. The pauses double, because a peer may reset each of our streams."""
        pause = FIRST_PAUSE
        while self._is_connected(own.identity):
            begun = trio.current_time()
            own.returned = trio.Event()
            try:
                await self._write(name, own)
            except Exception as error:  # noqa: BLE001 - the library raises many errors; none of them is final
                log.debug("our stream to %s ended: %r", name, error)
            wait = max(FIRST_PAUSE, begun + pause - trio.current_time())
            pause = min(2 * pause, LONGEST_PAUSE) if trio.current_time() < begun + STEADY_SECONDS else FIRST_PAUSE
            with trio.move_on_after(wait):
                await own.returned.wait()
        del self._own[name]

    async def _write(self, name: str, own: OwnStream) -> None:
        """Open our stream to a peer, and write what waits for the peer until the stream ends."""
        own.stream = stream = await self._host.new_stream(own.identity, [TProtocol(PROTOCOL)])
        try:
            async with trio.open_nursery() as nursery:
                own.writing = nursery.cancel_scope
                nursery.start_soon(_watch, stream, nursery.cancel_scope)
                self.perform(self._machine.writable(name, trio.current_time()))
                while True:
                    own.waits = trio.Event()
                    while frame := self._machine.next_frame(name):
                        await stream.write(frame)
                    await own.waits.wait()
        finally:
            own.stream = None
            self._machine.unwritable(name)
            # Otherwise the peer would read from it for as long as the connection lasts: it charges us for what we did
            # not finish, and refuses the streams of a peer with too many.
            await shielded(stream.reset)

    # The streams of peers.

    async def _take_stream(self, stream: Any) -> None:
        """Read a gossip stream of a peer until it ends."""
        identity = stream.muxed_conn.peer_id
        name, number = str(identity), next(self._numbers)
        if not (self._gossip.admit(name) and self._is_connected(identity)):
            await quietly(stream.reset)
            return
        self._machine.connected(name, outbound=self.dialled(identity))
        if not self._machine.stream_opened(name, number):
            log.info("refused a gossip stream of %s: it has %d", name, self._gossip.defences.gossip_streams)
            await quietly(stream.reset)
            return
        try:
            await self._read(name, number, stream)
        except RemoteError:
            self.perform(self._machine.broken(name, "RPC too large"))
        except trio.TooSlowError:
            self.perform(self._machine.unfinished(name, trio.current_time()))
        except (IOException, RawConnError):
            return  # the stream or its connection ended
        finally:
            self.perform(self._machine.stream_ended(name, number, trio.current_time()))
        await quietly(stream.reset)

    async def _read(self, name: str, number: int, stream: Any) -> None:
        """Read and process one RPC after the other, so that a peer that floods waits for its own messages.

        A peer may wait any time before an RPC, but must finish it within `frame_seconds` of its first byte. Raises
        trio.TooSlowError if it takes longer, RemoteError for an RPC that is too large, and IOException at the end of
        the stream. Returns when the peer is being disconnected.
        """
        frames, deadline = Frames(), trio.current_time()
        while True:
            if frames.has_begun:
                with trio.fail_at(deadline):
                    data = await stream.read(READ_BYTES)
            else:
                data = await stream.read(READ_BYTES)
            if not data:
                return
            began, found = frames.has_begun, frames.feed(bytes(data))
            for frame in found:
                if not self._gossip.admit(name):
                    self._disconnect(stream.muxed_conn.peer_id, NOT_ADMITTED)
                    return
                if not await self._process(name, number, frame):
                    return
            if found or not began:
                deadline = trio.current_time() + self._gossip.defences.frame_seconds

    async def _process(self, name: str, number: int, frame: bytes) -> bool:
        """Process one RPC. Returns False if the peer is being disconnected."""
        for action in self._machine.received(name, number, frame, trio.current_time()):
            match action:
                case Ask():
                    await self._ask(action)
                case Pause(seconds):
                    await trio.sleep(seconds)
                case Disconnect():
                    self.perform([action])
                    return False
                case _:
                    self.perform([action])
        return True

    async def _ask(self, ask: Ask) -> None:
        """Ask the node for its verdict on a message. If this is cancelled the node gave none, and is asked again."""
        verdict = Verdict.BUSY
        try:
            if self._gossip.admit(ask.peer):
                verdict = await self._gossip.channels[ask.topic.decode()].ask(ask.peer, ask.data)
        finally:
            self.perform(self._machine.settle(ask.key, verdict, trio.current_time()))


async def _watch(stream: Any, scope: trio.CancelScope) -> None:
    """Cancel `scope` when our stream ends. The peer writes nothing on it, so a read returns only then.

    A peer resets it, for one, while it still reads too many older ones of ours.
    """
    try:
        await stream.read(1)
    except Exception as error:  # noqa: BLE001 - the stream has ended, whatever the error
        log.debug("our stream has ended: %r", error)
    scope.cancel()
