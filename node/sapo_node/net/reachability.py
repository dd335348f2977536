"""Learns from a peer how it sees this node: the address by identify, and whether it can be dialled by AutoNAT v1.

https://github.com/libp2p/specs/blob/master/autonat/autonat-v1.md

A peer that answers may lie, so the answer is shown to the operator and decides nothing. As a server, the node dials a
peer that asks. It dials at most ADDRESSES, only at IP addresses that this peer is connected from, and within the budget
of its address block. So nobody can make it dial a third machine.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.host.autonat.pb.autonat_pb2 import Message
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from sapo_node.net import addresses
from sapo_node.net.dialer import Dial
from sapo_node.net.feelers import first_that_answers
from sapo_node.net.inbound import ProtocolBroken, quietly, shielded
from sapo_node.net.relay import read_message, write_message
from sapo_node.processes.link_budget import LinkBudget

AUTONAT = TProtocol("/libp2p/autonat/1.0.0")
ADDRESSES = 2  # of a peer that are dialled
DIAL_SECONDS = 4.0  # for all of them
RATE, BURST = 1 / 60, 2.0
"""Requests per second, and at once, of one peer or of the peers of one address block."""
ALL_RATE, ALL_BURST = 0.2, 8.0


async def seen_by(host: Any, peer_id: str) -> tuple[str, tuple[str, int]]:
    """Ask a connected peer at which address it sees this node.

    Returns the address, by the peer's word, and the IP address and port of the peer's end of the connection on which it
    was asked: the peer may have several. Raises ProtocolBroken if it names no address, and any error of the library.
    """
    stream = await host.new_stream(ID.from_string(peer_id), [IDENTIFY])
    try:
        seen = addresses.text_of(Multiaddr((await read_message(stream, Identify)).observed_addr))
        if not addresses.is_dialable(seen):
            raise ProtocolBroken("it named no address at which it sees this node")
        return seen, stream.get_remote_address()
    finally:
        await shielded(stream.reset)


class AutoNat:
    """Both sides of AutoNAT, on one libp2p host."""

    def __init__(
        self,
        host: Any,
        *,
        check: Dial,
        sources: Callable[[str], Collection[str]],
        payer: Callable[[str], str],
    ) -> None:
        """`check(peer id, address)` dials a connected peer. `sources(peer id)` are its IP addresses.

        `payer(peer id)` is its address block, or its id if it is in none of the Internet.
        """
        self._host = host
        self._check = check
        self._sources = sources
        self._payer = payer
        self._budget = LinkBudget(rate=RATE, burst=BURST, for_all=(ALL_RATE, ALL_BURST))
        host.set_stream_handler(AUTONAT, self._serve)

    async def ask(self, peer_id: str, where: Iterable[str]) -> bool:
        """Ask a connected peer to dial this node at some addresses. Returns whether one answered, by its word.

        Raises any error of the library.
        """
        request = Message(type=Message.DIAL)
        request.dial.peer.id = self._host.get_id().to_bytes()
        request.dial.peer.addrs.extend(Multiaddr(each).to_bytes() for each in where)
        stream = await self._host.new_stream(ID.from_string(peer_id), [AUTONAT])
        try:
            await write_message(stream, request)
            answer = await read_message(stream, Message)
        finally:
            await shielded(stream.reset)
        return bool(answer.dialResponse.status == Message.OK)

    async def _serve(self, stream: Any) -> None:
        peer_id = str(stream.muxed_conn.peer_id)
        request = await read_message(stream, Message)
        answer = Message(type=Message.DIAL_RESPONSE)
        if self._budget.take(self._payer(peer_id), trio.current_time()):
            reached = await self._reaches(peer_id, request.dial.peer.addrs)
            answer.dialResponse.status = Message.OK if reached else Message.E_DIAL_ERROR
        else:
            answer.dialResponse.status = Message.E_DIAL_REFUSED
        await write_message(stream, answer)
        await quietly(stream.close)

    async def _reaches(self, peer_id: str, told: Iterable[bytes]) -> bool:
        texts = [addresses.text_of(Multiaddr(each)) for each in told]
        here, are_elsewhere = addresses.places_of(texts, self._sources(peer_id))
        dialled = () if are_elsewhere else here[:ADDRESSES]
        with trio.move_on_after(DIAL_SECONDS):
            return bool(await first_that_answers(self._check, peer_id, dialled, DIAL_SECONDS))
        return False
