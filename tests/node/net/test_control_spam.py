"""Control messages beyond measure: each kind costs its sender the mesh place and the connection (`control-spam`).

An attacker that is in the mesh floods a node until it is refused; an honest peer of the node keeps its place.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p.pubsub.pb import rpc_pb2
from sapo_node.net.router import ControlBudget
from sapo_node.net.seen_cache import message_id

from sapo_node.gossip.score import Offence
from sapo_node.net.interface import ServiceRestarted

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Attacker, Probe, Start, Until

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"
HEARTBEATS = 10.0  # seconds, of one each


@pytest.fixture
async def victim(start: "Start", until: "Until") -> "AsyncIterator[Probe]":
    """A node with one honest peer, which hears it and is heard when the attack is over, and kept its place."""
    node = await start(1)
    honest = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(honest) and honest.sees(node))
    yield node
    await honest.publish(b"to the victim")
    await node.publish(b"from the victim")
    await until(lambda: b"to the victim" in node.heard and b"from the victim" in honest.heard)
    assert in_mesh(node, honest.network.peer_id)
    assert node.noticed(ServiceRestarted) == []


def in_mesh(node: "Probe", peer: str) -> bool:
    return peer in map(str, node.router.mesh[TOPIC])


def score(node: "Probe", peer: str) -> float:
    return node.router.scores.score(trio.current_time(), peer)


def control(**kinds: Any) -> Any:
    return rpc_pb2.RPC(control=rpc_pb2.ControlMessage(**kinds))


def graft(topic: str = TOPIC) -> Any:
    return rpc_pb2.ControlGraft(topicID=topic)


def ids(count: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in range(count)]


async def enter_mesh(node: "Probe", mallory: "Attacker", until: "Until") -> None:
    await mallory.send_rpc(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=TOPIC)]))
    await mallory.send_rpc(control(graft=[graft()]))
    await until(lambda: in_mesh(node, mallory.peer_id))


FLOODS = {
    "IHAVE": control(ihave=[rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=ids(50))] * 10),
    "IWANT": control(iwant=[rpc_pb2.ControlIWant(messageIDs=ids(64))]),
    "GRAFT": control(graft=[graft()] * 10),
    "GRAFT of a topic that we do not follow": control(graft=[graft("unknown")]),
    "PRUNE of a topic that we do not follow": control(prune=[rpc_pb2.ControlPrune(topicID="unknown")] * 10),
    "IDONTWANT": control(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=ids(1))]),
    "nothing at all": rpc_pb2.RPC(),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_each_kind_is_above_the_rate_of_a_peer(kind: str) -> None:
    budget, flood = ControlBudget(), FLOODS[kind]
    assert budget.excess("honest", 0.0, control(graft=[graft()])) == 0
    assert any(budget.excess("mallory", 0.0, flood) for _ in range(10_000))
    assert budget.excess("honest", 0.0, control(graft=[graft()])) == 0


@pytest.mark.parametrize(
    "kind", ["GRAFT", *(pytest.param(kind, marks=pytest.mark.slow) for kind in FLOODS if kind != "GRAFT")]
)
async def test_who_floods_is_out_of_the_mesh_and_cannot_come_back_at_once(
    kind: str, victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    async with attacker(victim.address) as mallory:
        await enter_mesh(victim, mallory, until)

        with trio.move_on_after(HEARTBEATS), suppress(Exception):  # the node hangs up
            while True:
                await mallory.send_rpc(FLOODS[kind])
        await until(lambda: not mallory.linked() and not in_mesh(victim, mallory.peer_id), within=HEARTBEATS)
    with suppress(Exception):  # the node hangs up as soon as it knows who calls
        async with attacker(victim.address) as mallory:
            await mallory.send_rpc(mallory.rpc(mallory.message(b"again")))
            await trio.sleep(1)
    assert mallory.peer_id not in victim.links()
    assert b"again" not in victim.heard


async def test_one_graft_in_back_off_is_refused_and_tolerated_and_ten_are_charged(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    async with attacker(victim.address) as mallory:
        await enter_mesh(victim, mallory, until)
        await mallory.send_rpc(control(prune=[rpc_pb2.ControlPrune(topicID=TOPIC, backoff=60)]))
        await mallory.send_rpc(control(graft=[graft()]))
        await until(lambda: any(rpc.control.prune for rpc in mallory.received))
        assert not in_mesh(victim, mallory.peer_id)
        assert score(victim, mallory.peer_id) >= 0
        for _ in range(10):
            await mallory.send_rpc(control(graft=[graft()]))
        await until(lambda: score(victim, mallory.peer_id) < 0, within=HEARTBEATS)
        assert not in_mesh(victim, mallory.peer_id)


async def test_who_offers_what_it_never_delivers_is_out_of_the_mesh(
    victim: "Probe", attacker: "Attack", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promise has ten seconds, so that it takes about half a minute; here they have a tenth of a second."""
    monkeypatch.setattr("sapo_node.net.router.PROMISE_SECONDS", 0.1)
    async with attacker(victim.address) as mallory:
        await enter_mesh(victim, mallory, until)
        offers = iter(range(1000))
        with trio.fail_after(HEARTBEATS):
            while in_mesh(victim, mallory.peer_id):
                fresh = b"%032d" % next(offers)
                await mallory.send_rpc(control(ihave=[rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=[fresh])]))
                await trio.sleep(0.5)


async def test_who_delivers_one_of_what_it_offered_is_not_charged(
    victim: "Probe", attacker: "Attack", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapo_node.net.router.PROMISE_SECONDS", 1.5)
    async with attacker(victim.address) as mallory:
        offered = [message_id(TOPIC, b"offered"), *ids(10)]
        await mallory.send_rpc(control(ihave=[rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=offered)]))
        await until(lambda: any(rpc.control.iwant for rpc in mallory.received))
        await mallory.send_rpc(mallory.rpc(mallory.message(b"offered")))
        await until(lambda: b"offered" in victim.heard)
        await trio.sleep(3)  # longer than the promise and a heartbeat
        assert victim.router.scores.of(trio.current_time(), mallory.peer_id).offences == 0


async def test_a_message_that_is_asked_for_again_and_again_is_sent_once_in_a_heartbeat(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    async with attacker(victim.address) as mallory:
        await victim.publish(bytes(100_000))
        key = message_id(TOPIC, bytes(100_000))
        for _ in range(50):
            await mallory.send_rpc(control(iwant=[rpc_pb2.ControlIWant(messageIDs=[key])]))
        await until(lambda: any(rpc.publish for rpc in mallory.received))
        await trio.sleep(0.5)
        assert sum(len(rpc.publish) for rpc in mallory.received) <= 3


async def test_a_new_connection_brings_no_new_score(victim: "Probe", attacker: "Attack", until: "Until") -> None:
    async with attacker(victim.address) as mallory:
        victim.router.scores.offended(trio.current_time(), mallory.peer_id, Offence.EXCESS, 12)
    async with attacker(victim.address) as mallory:
        await mallory.send_rpc(control(graft=[graft()]))
        await trio.sleep(1.5)
        assert not in_mesh(victim, mallory.peer_id)
        assert score(victim, mallory.peer_id) < 0
