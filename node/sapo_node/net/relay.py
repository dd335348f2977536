"""Serves circuits, with which two peers behind routers meet: circuit relay v2.

https://github.com/libp2p/specs/blob/master/relay/circuit-v2.md

A peer that is connected to this node reserves (RESERVE). Then another connected peer may ask for a circuit to it
(CONNECT). A circuit carries at most CIRCUIT_BYTES, both ways together, for at most CIRCUIT_SECONDS. This is enough to
agree on a direct connection, and too little for rollouts. Every node serves, and all its circuits together carry at
most CIRCUIT_BYTES times ALL_CIRCUITS_RATE a second.

A reservation holds as long as the connection that it came by. So there are never more than connections, and a peer
cannot reserve for another. Circuits are charged to the peer that asks for them, and peers of one address block share
one budget. The node never charges a peer for what its guest does, nor a guest for what others send to it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import trio
from google.protobuf.message import DecodeError, Message
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import MessageTooLarge
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2
from libp2p.relay.circuit_v2.pb.circuit_pb2 import HopMessage, Limit, Reservation, StopMessage
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes_limited

from sapo_node.net.inbound import CLOSE_SECONDS, ProtocolBroken, quietly
from sapo_node.processes.link_budget import LinkBudget

log = logging.getLogger(__name__)

HOP = TProtocol("/libp2p/circuit/relay/0.2.0/hop")
STOP = TProtocol("/libp2p/circuit/relay/0.2.0/stop")

MESSAGE_BYTES = 4_096  # of one message of these protocols
MESSAGE_SECONDS = 5.0  # to receive one
CIRCUIT_BYTES = 64 * 1024
CIRCUIT_SECONDS = 60.0
CIRCUITS = 16  # at one time
PEER_CIRCUITS = 4  # at one time, of one peer at either end
CIRCUITS_RATE, CIRCUITS_BURST = 1 / 30, 8.0
"""Circuits per second, and at once, for which one peer or the peers of one address block may ask."""
ALL_CIRCUITS_RATE, ALL_CIRCUITS_BURST = 0.5, 32.0
RESERVATION_SECONDS = 3_600
PIECE_BYTES = 4_096  # that are passed on at a time

M = TypeVar("M", bound=Message)


async def read_message(stream: Any, kind: type[M]) -> M:
    """Read one message with its length before it. Raises ProtocolBroken if the bytes are none, or come too late."""
    message = kind()
    try:
        with trio.fail_after(MESSAGE_SECONDS):
            message.ParseFromString(bytes(await read_varint_prefixed_bytes_limited(stream, MESSAGE_BYTES)))
    except (DecodeError, MessageTooLarge, trio.TooSlowError) as error:
        raise ProtocolBroken(f"{kind.__name__}: {type(error).__name__}") from error
    return message


async def write_message(stream: Any, message: Message) -> None:
    """Write one message with its length before it."""
    with trio.fail_after(MESSAGE_SECONDS):
        await stream.write(encode_varint_prefixed(message.SerializeToString()))


class Relay:
    """Serves the circuits of one host."""

    def __init__(self, host: Any, *, payer: Callable[[str], str]) -> None:
        """`payer(peer id)` is the address block of a connected peer, or its id if it is in none of the Internet."""
        self._host = host
        self._payer = payer
        self._guests: set[str] = set()
        self._ends: Counter[str] = Counter()
        """By peer: the open circuits at whose ends it is."""
        self._budget = LinkBudget(
            rate=CIRCUITS_RATE, burst=CIRCUITS_BURST, for_all=(ALL_CIRCUITS_RATE, ALL_CIRCUITS_BURST)
        )
        host.set_stream_handler(HOP, self._serve)

    def has_guest(self, peer_id: str) -> bool:
        """Return whether a peer has a reservation."""
        return peer_id in self._guests

    def left(self, peer_id: str) -> None:
        """A peer is no longer connected."""
        self._guests.discard(peer_id)

    async def _serve(self, stream: Any) -> None:
        """Answer one request. Raises ProtocolBroken for what is none."""
        asker = str(stream.muxed_conn.peer_id)
        request = await read_message(stream, HopMessage)
        if request.type == HopMessage.RESERVE:
            self._guests.add(asker)
            until = Reservation(expire=int(time.time()) + RESERVATION_SECONDS)
            await write_message(stream, _status(circuit_pb2.OK, reservation=until))
            await quietly(stream.close)
        elif request.type == HopMessage.CONNECT:
            await self._connect(stream, asker, str(ID(request.peer.id)))
        else:
            raise ProtocolBroken("neither RESERVE nor CONNECT")

    async def _connect(self, stream: Any, asker: str, guest: str) -> None:
        """Serve a circuit until it ends, or refuse it."""
        status = self._refusal(asker, guest)
        if status != circuit_pb2.OK:
            await write_message(stream, _status(status))
            await quietly(stream.close)
            return
        self._ends.update((asker, guest))
        onward = None
        try:
            with trio.move_on_after(CIRCUIT_SECONDS):
                onward = await self._reach(asker, guest)
                if onward is None:
                    await write_message(stream, _status(circuit_pb2.CONNECTION_FAILED))
                else:
                    await write_message(stream, _status(circuit_pb2.OK, limit=_limit()))
                    await _pass_on(stream, onward)
        except Exception as error:  # noqa: BLE001 - either end may have caused it, so neither is charged
            log.debug("a circuit from %s to %s ended: %r", asker, guest, error)
        finally:
            self._ends -= Counter((asker, guest))
            with trio.CancelScope(deadline=trio.current_time() + CLOSE_SECONDS, shield=True):
                for each in filter(None, (stream, onward)):
                    await quietly(each.reset if onward else each.close)

    def _refusal(self, asker: str, guest: str) -> Any:
        """Return the status of a request for a circuit, which is OK if it is granted."""
        if guest not in self._guests or guest == asker:
            return circuit_pb2.NO_RESERVATION
        is_full = self._ends.total() >= 2 * CIRCUITS or max(self._ends[asker], self._ends[guest]) >= PEER_CIRCUITS
        if is_full or not self._budget.take(self._payer(asker), trio.current_time()):
            return circuit_pb2.RESOURCE_LIMIT_EXCEEDED
        return circuit_pb2.OK

    async def _reach(self, asker: str, guest: str) -> Any:
        """Return the stream to a guest that takes the circuit; None if it does not."""
        onward = None
        try:
            with trio.fail_after(MESSAGE_SECONDS):
                onward = await self._host.new_stream(ID.from_string(guest), [STOP])
                offer = StopMessage(type=StopMessage.CONNECT, limit=_limit())
                offer.peer.id = ID.from_string(asker).to_bytes()
                await write_message(onward, offer)
                answer = await read_message(onward, StopMessage)
            if answer.status == circuit_pb2.OK:
                return onward
        except Exception as error:  # noqa: BLE001 - whatever it was, the guest cannot be reached
            log.debug("%s takes no circuit: %r", guest, error)
        if onward is not None:
            await quietly(onward.reset)
        return None


async def _pass_on(one: Any, other: Any) -> None:
    """Pass bytes on between two streams until one ends, or CIRCUIT_BYTES were passed on."""
    left = CIRCUIT_BYTES

    async def copy(source: Any, target: Any) -> None:
        nonlocal left
        try:
            while data := bytes(await source.read(PIECE_BYTES))[:left]:
                left -= len(data)
                await target.write(data)
        except Exception as error:  # noqa: BLE001 - the library raises many errors for a stream that has ended
            log.debug("one end of a circuit ended: %r", error)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(copy, one, other)
        nursery.start_soon(copy, other, one)


def _limit() -> Limit:
    return Limit(duration=int(CIRCUIT_SECONDS), data=CIRCUIT_BYTES)


def _status(status: Any, **parts: Any) -> HopMessage:
    return HopMessage(type=HopMessage.STATUS, status=status, **parts)
