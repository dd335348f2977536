"""Limits the connections and streams that peers open: how many, how fast, and from which addresses.

A connection over the rate of its address block (`ConnectionRate`) gets no handshake. If all slots are taken, a new
connection takes the slot of the least useful one (`least_useful`). The node closes a connection after IDLE_SECONDS if
its peer follows no topic of ours and brought no accepted message. If all handshakes are taken, a new one takes the
place of the oldest.

Each function that closes a connection says why. `Session.disconnected` logs it.

Every inbound connection and stream starts here. This module handles all their errors: an error that reached the
library's nurseries would end the host.
"""

import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio
from libp2p.host.exceptions import StreamFailure
from libp2p.io.exceptions import IOException
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.protocol_muxer.exceptions import MultiselectError

from sapo_node.net.addresses import block_of, machine_of
from sapo_node.net.connection_rate import ConnectionRate
from sapo_node.net.settings import NetworkDefences

log = logging.getLogger(__name__)

BY_MESSAGES, BY_BLOCK = 8, 8
"""Connections that are protected by each measure."""
_SECRET = secrets.token_bytes(32)
"""Per-process secret, so that an attacker cannot pick protected blocks."""
HANDSHAKES = 16  # unfinished, from one machine
ALL_HANDSHAKES = 64  # unfinished
IDLE_SECONDS = 20.0  # an honest peer tells its topics within a second, or publishes
CLOSE_SECONDS = 2.0
HANDSHAKE_SECONDS = 5.0
NOT_ADMITTED = "it is banned, or flooded lately"
REFUSED_ADDRESS_SECONDS = 60.0  # honest peers may share the address; the node can still dial them


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """An inbound connection, which holds a slot."""

    peer_id: str
    block: str
    """Its address block, /24 or /48."""
    since: float
    """Time at which it was accepted, in seconds."""
    link: Any = field(default=None, repr=False)
    """The library's connection."""


def least_useful(slots: Sequence[Slot], brought: Callable[[str], int]) -> Slot | None:
    """The inbound connection that gives way to a new one if all slots are taken; None if all are protected.

    A new connection always finds a slot, so that idle connections lock nobody out. No address has a fixed cap, because
    many honest nodes may share one. The rule is Bitcoin Core's. It protects by several measures, and an attacker has to
    be best in each:

    - BY_MESSAGES connections whose peers brought most accepted messages (`brought(peer id)`),
    - the oldest connection of each of BY_BLOCK address blocks, in a secret order,
    - the older half of the rest.

    Of the remaining connections, the address block with most of them loses its youngest one.
    """
    rest = sorted(slots, key=lambda slot: slot.since)
    useful = sorted((slot for slot in rest if brought(slot.peer_id)), key=lambda slot: -brought(slot.peer_id))
    rest = _without(rest, useful[:BY_MESSAGES])
    oldest = {slot.block: slot for slot in reversed(rest)}
    rest = _without(rest, [oldest[block] for block in sorted(oldest, key=_secret_order)[:BY_BLOCK]])
    rest = rest[len(rest) // 2 :]
    if not rest:
        return None
    sizes = Counter(slot.block for slot in rest)
    largest = max(sizes.values())
    crowded = secrets.choice([block for block in sizes if sizes[block] == largest])
    return [slot for slot in rest if slot.block == crowded][-1]


def _without(slots: Sequence[Slot], protected: Sequence[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot not in protected]


def _secret_order(block: str) -> bytes:
    return hashlib.blake2b(block.encode(), key=_SECRET, digest_size=16).digest()


class ProtocolBroken(Exception):
    """Raised by the handler of a stream if the peer breaks its protocol. The text says how."""


class Inbound:
    """Handles the inbound connections and streams of one host."""

    def __init__(
        self,
        swarm: Any,
        slots: int,
        defences: NetworkDefences,
        *,
        refuses: Callable[[str], bool],
        offended: Callable[[str, str], None],
        follows: Callable[[str], object],
        brought: Callable[[str], int],
    ) -> None:
        """Replaces the swarm's own handler of streams.

        `slots` are those of all connections, in either direction. `refuses(peer id)` says whether to refuse the address
        of a peer. `offended(peer id, cause)` is called if a peer breaks a protocol. `follows(peer id)` says whether a
        peer follows a topic of ours, and `brought(peer id)` how many messages of it were accepted.
        """
        self.streams: Counter[str] = Counter()
        """Open streams by peer id."""
        self._swarm = swarm
        self._refuses = refuses
        self._offended = offended
        self._follows = follows
        self._brought = brought
        self._most = slots
        self._defences = defences
        self._rate = ConnectionRate()
        self._slots: list[Slot] = []
        self._handshakes: dict[trio.CancelScope, str] = {}
        """The machines of unfinished handshakes, the oldest first."""
        self._refused_addresses: dict[str, float] = {}
        """By machine: until when its connections are refused."""
        self._refused: Counter[str] = Counter()
        """The connections and streams that were refused, by reason."""
        self._negotiate = swarm.common_stream_handler
        swarm.set_stream_handler(self._take_stream)

    async def _take_stream(self, stream: Any) -> None:
        """Handle one inbound stream of any protocol. Raises nothing, which would end the connection."""
        peer_id = str(stream.muxed_conn.peer_id)
        if self.streams[peer_id] >= self._defences.streams:
            self._count("stream", f"its peer has {self._defences.streams} open", peer_id)
            await quietly(stream.reset)
            return
        self.streams[peer_id] += 1
        try:
            await self._negotiate(stream)
        except (IOException, StreamFailure, MultiselectError) as error:
            log.debug("a stream of %s ended: %r", peer_id, error)
            await quietly(stream.reset)
        except ProtocolBroken as error:
            self._offended(peer_id, str(error))
            await quietly(stream.reset)
        except Exception as error:  # noqa: BLE001 - it would tear down the swarm
            self._offended(peer_id, f"broke a protocol handler: {type(error).__name__}")
            await quietly(stream.reset)
        finally:
            self.streams[peer_id] -= 1
            if not self.streams[peer_id]:
                del self.streams[peer_id]

    async def take_connection(self, socket: Any) -> None:
        """Upgrade a socket that a peer opened to a connection, and hold its slot until it closes."""
        remote = socket.get_remote_address()
        source = remote[0] if remote else ""
        machine = machine_of(source)
        crowded = list(self._handshakes.values()).count(machine) >= HANDSHAKES
        if crowded or not self._rate.admits(source, trio.current_time()):
            why = f"its address has {HANDSHAKES} unfinished handshakes" if crowded else "too many new ones in a second"
            self._count("connection", why, source)
            await quietly(socket.close)
            return
        if len(self._handshakes) >= ALL_HANDSHAKES:
            scope, oldest = next(iter(self._handshakes.items()))
            self._count("handshake", f"{ALL_HANDSHAKES} are unfinished, and it is the oldest", oldest)
            scope.cancel()
        muxed = await self._upgrade(socket, machine)
        if muxed is None:
            await quietly(socket.close)
            return
        if self._refuses(str(muxed.peer_id)):
            self._refuse_address(machine)
        for link in self._swarm.get_connections(muxed.peer_id):
            if link.muxed_conn is muxed:
                await self._hold(Slot(str(muxed.peer_id), block_of(source), trio.current_time(), link))
                if self._brought(str(muxed.peer_id)):
                    self._rate.remember(source)

    async def _upgrade(self, socket: Any, machine: str) -> Any:
        """The connection after its handshake; None if that failed or had to give way."""
        with trio.CancelScope() as scope:
            self._handshakes[scope] = machine
            try:
                await self._let_in(machine)
                return await self._swarm.upgrade_inbound_raw_conn(RawConnection(socket, False), machine)
            except Exception as error:  # noqa: BLE001 - a failed handshake ends only its connection
                log.debug("handshake from %s failed: %r", machine, error)
            finally:
                del self._handshakes[scope]
        return None

    async def _hold(self, slot: Slot) -> None:
        """Hold the slot of a connection until it closes."""
        self._slots.append(slot)
        try:
            if self._defences.eviction:
                await self._make_room(slot)
                for _ in range(2):  # halves: a stall of this node is one of them, and peers speak in the other
                    with trio.move_on_after(IDLE_SECONDS / 2):
                        await slot.link.event_closed.wait()
                if not (self._follows(slot.peer_id) or self._brought(slot.peer_id)):
                    why = f"it followed no topic of this node and brought no valid message in {IDLE_SECONDS:g} s"
                    await close_link(slot.link, why)
            await slot.link.event_closed.wait()
        finally:
            if slot in self._slots:
                self._slots.remove(slot)

    async def _make_room(self, new: Slot) -> None:
        """Close the least useful inbound connections while there are more than slots; never the new one."""
        while len(self._slots) > self._room():
            evicted = least_useful([slot for slot in self._slots if slot is not new], self._brought)
            if evicted is None:
                return
            self._slots.remove(evicted)
            await close_link(evicted.link, "all slots are taken, and it is the least useful connection")

    def _room(self) -> int:
        """Slots for inbound connections."""
        outbound = [link for link in self._swarm.get_connections() if link.direction.name == "OUTBOUND"]
        return max(1, self._most - max(len(outbound), self._defences.reserved_outbound))

    async def _let_in(self, machine: str) -> None:
        """Raise ConnectionRefusedError for a refused address, but late: a peer refused at once returns at once."""
        if trio.current_time() < self._refused_addresses.get(machine, 0.0):
            await trio.sleep(HANDSHAKE_SECONDS)
            raise ConnectionRefusedError(machine)

    def _count(self, kind: str, why: str, origin: str) -> None:
        """Log a refused connection or stream. Only counts 1, 2, 4, 8, ..., so that a flood fills no log."""
        self._refused[why] += 1
        count = self._refused[why]
        if count & (count - 1) == 0:
            log.info("refused a %s of %s: %s (%d so far)", kind, origin, why, count)

    def _refuse_address(self, machine: str) -> None:
        """Refuse connections from the machine of a peer that floods. Without this, each one costs us a handshake."""
        now = trio.current_time()
        self._refused_addresses = {each: until for each, until in self._refused_addresses.items() if until > now}
        self._refused_addresses[machine] = now + REFUSED_ADDRESS_SECONDS


async def close_link(link: Any, why: str) -> None:
    """Close a connection. If its other end does not read, the library's function waits for it without end."""
    if not link.is_closed:
        link.muxed_conn.why_closed = link.muxed_conn.why_closed or why
    with trio.move_on_after(CLOSE_SECONDS) as scope:
        await quietly(link.close)
    if scope.cancelled_caught:
        await quietly(link.muxed_conn.secured_conn.close)


async def quietly(close: Callable[[], Any]) -> None:
    """Close something that is no longer needed. Errors are only logged."""
    try:
        await close()
    except Exception as error:  # noqa: BLE001 - see above
        log.debug("closing failed: %r", error)


async def shielded(close: Callable[[], Any]) -> None:
    """Close something within CLOSE_SECONDS, also while this task is cancelled. Errors are only logged."""
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_SECONDS, shield=True):
        await quietly(close)
