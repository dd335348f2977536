"""Hole punching and relaying against peers that abuse both, on virtual time and without a socket."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2
from libp2p.relay.circuit_v2.pb.circuit_pb2 import StopMessage
from libp2p.utils.varint import encode_varint_prefixed
from trio.testing import MockClock

from sapo_node.net import hole_punch, relay
from sapo_node.net.hole_punch import HolePunching
from sapo_node.net.relay import Relay


def key(number: int) -> ID:
    return ID.from_pubkey(create_new_key_pair(number.to_bytes(32)).public_key)


OWN, RELAY, FRIEND = (str(key(number)) for number in range(3))


class Libp2pHost:
    """A libp2p host that notes at which peers streams are opened, and opens none."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_id(self) -> ID:
        return ID.from_string(OWN)

    def get_network(self) -> Any:
        return SimpleNamespace(upgrader=None)

    def set_stream_handler(self, _protocol: str, _handler: Any) -> None: ...

    async def new_stream(self, peer: ID, _protocols: Any) -> Any:
        self.asked.append(str(peer))
        await trio.sleep_forever()


class Node:
    """A node that admits everybody, and whose dials all fail at once."""

    def __init__(self) -> None:
        self.dialled: list[str] = []

    def is_linked(self, _peer_id: str) -> bool:
        return False

    def admits(self, _peer_id: str) -> bool:
        return True

    def possible_relays(self) -> list[str]:
        return []

    def outer_addresses(self, _seen: str) -> list[str]:
        return []

    async def dial_from_listening_port(self, _peer_id: str, address: str, *, as_server: bool) -> None:
        self.dialled.append(address)
        raise OSError("another machine answered")


class Offer:
    """The stream of a relay that brings a peer, and never reads the answer."""

    def __init__(self, brings: str) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=RELAY)
        message = StopMessage(type=StopMessage.CONNECT)
        message.peer.id = ID.from_string(brings).to_bytes()
        self._rest = encode_varint_prefixed(message.SerializeToString())

    async def read(self, size: int) -> bytes:
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    async def write(self, _data: bytes) -> None:
        await trio.sleep_forever()


@pytest.mark.parametrize("brings", [FRIEND, str(key(3))])
async def test_offers_that_the_node_refuses_keep_it_from_meeting_nobody(
    autojump_clock: MockClock, nursery: trio.Nursery, brings: str
) -> None:
    libp2p_host = Libp2pHost()
    punching = HolePunching(libp2p_host, Node())
    nursery.start_soon(punching.run)
    await trio.sleep(0.1)
    with trio.move_on_after(3):
        async with trio.open_nursery() as offers:
            for _ in range(hole_punch.AT_ONCE):
                offers.start_soon(punching._invited, Offer(brings))
            await trio.sleep(1)
            punching._relays[RELAY] = "9.9.9.9"  # the node has reserved there by now
            punching.meet(RELAY, FRIEND)
            await trio.sleep(1)
            offers.cancel_scope.cancel()
    assert libp2p_host.asked == [RELAY]
    nursery.cancel_scope.cancel()


async def test_relays_that_never_answer_keep_the_node_from_meeting_nobody_for_long(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    libp2p_host = Libp2pHost()
    punching = HolePunching(libp2p_host, Node())
    nursery.start_soon(punching.run)
    await trio.sleep(0.1)
    punching._relays |= {RELAY: "9.9.9.9", FRIEND: "9.9.9.9"}
    for number in range(3, 3 + 2 * hole_punch.AT_ONCE):
        punching.meet(RELAY, str(key(number)))
        await trio.sleep(0.1)
    assert libp2p_host.asked == [RELAY] * hole_punch.AT_ONCE
    await trio.sleep(hole_punch.MEETING_SECONDS)
    punching.meet(FRIEND, str(key(99)))
    await trio.sleep(0.1)
    assert libp2p_host.asked[-1] == FRIEND
    nursery.cancel_scope.cancel()


async def test_a_third_machine_that_a_peer_names_is_dialled_few_times(autojump_clock: MockClock) -> None:
    node = Node()
    punching = HolePunching(Libp2pHost(), node)
    await punching._dial(FRIEND, ["/ip4/9.9.9.9/tcp/80", "/ip4/9.9.9.9/tcp/443"], as_server=False)
    assert len(node.dialled) == 2 * hole_punch.ATTEMPTS


def test_many_keys_of_one_address_block_share_their_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio, "current_time", lambda: 0.0)
    crowd = {str(key(number)) for number in range(10, 74)}
    serving = Relay(Libp2pHost(), payer=lambda peer: "9.9.9.0/24" if peer in crowd else peer)
    serving._guests.update(crowd, {FRIEND})
    granted = sum(serving._refusal(peer, FRIEND) == circuit_pb2.OK for peer in crowd)
    assert granted == relay.CIRCUITS_BURST
    assert serving._refusal(RELAY, FRIEND) == circuit_pb2.OK
