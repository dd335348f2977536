"""A mesh of real nodes: who keeps a place in it, and who does not (`freeloader`)."""

from typing import TYPE_CHECKING

import pytest
import trio
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from sapo_node.net.router import CROWDED_BACK_OFF, OPPORTUNITY_BEATS

from sapo_node.gossip.score import Offence
from sapo_node.net.host import DEGREE_HIGH

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Probe, Start, Until

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"


def score(node: "Probe", peer: str) -> float:
    return node.router.scores.score(trio.current_time(), peer)


def mesh(node: "Probe") -> set[str]:
    return set(map(str, node.router.mesh[TOPIC]))


@pytest.mark.slow
async def test_a_peer_that_never_forwards_loses_its_place_and_nothing_else(
    start: "Start", attacker: "Attack", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mesh delivers some 40 messages a peer; honest peers, who deliver about as much as each other, keep theirs."""
    monkeypatch.setattr("sapo_node.gossip.score.ACTIVATION_SECONDS", 0.0)
    victim = await start(1)
    honest: list[Probe] = []
    for number in (2, 3, 4):
        honest.append(await start(number, bootstrap=(victim.address, *(each.address for each in honest))))
    names = {each.network.peer_id for each in honest}
    async with attacker(victim.address) as mallory:
        await mallory.send_rpc(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=TOPIC)]))
        await until(lambda: mesh(victim) == {mallory.peer_id, *names})
        for number in range(120):
            await honest[number % 3].publish(b"message %d" % number)
            await trio.sleep(0.03)
        await until(lambda: mesh(victim) == names)
        assert score(victim, mallory.peer_id) < 0
        assert mallory.linked()
        assert all(score(node, name) >= 0 for node in (victim, *honest) for name in names)

        await mallory.send_rpc(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(graft=[rpc_pb2.ControlGraft(topicID=TOPIC)])))
        await victim.publish(b"to all")
        await until(lambda: any(each.data == b"to all" for rpc in mallory.received for each in rpc.publish))
        assert mallory.peer_id not in mesh(victim)


def silent(count: int) -> set[ID]:
    return {ID(b"silent %d" % number) for number in range(count)}


@pytest.mark.parametrize("heartbeats", [0, OPPORTUNITY_BEATS - 1])
async def test_a_full_mesh_in_which_nobody_delivers_takes_in_a_peer_that_does(
    pair: "tuple[Probe, Probe]", heartbeats: int
) -> None:
    one, other = pair
    one.router.mesh[TOPIC] = silent(DEGREE_HIGH)
    one.router._heartbeats = heartbeats
    one.router.scores.delivered(trio.current_time(), TOPIC, [other.network.peer_id], ())
    grafts, _ = one.router.mesh_heartbeat()
    assert {str(peer) for peer in grafts} == {other.network.peer_id}


async def test_a_mesh_in_which_somebody_delivers_is_improved_only_in_its_turn(pair: "tuple[Probe, Probe]") -> None:
    one, other = pair
    one.router.mesh[TOPIC] = silent(DEGREE_HIGH - 1)
    one.router._heartbeats = 0
    for peer in (other.network.peer_id, str(ID(b"silent 0"))):
        one.router.scores.delivered(trio.current_time(), TOPIC, [peer], ())
    assert not one.router.mesh_heartbeat()[0]
    one.router._heartbeats = OPPORTUNITY_BEATS - 1
    assert {str(peer) for peer in one.router.mesh_heartbeat()[0]} == {other.network.peer_id}


async def test_a_peer_that_had_no_room_may_come_back_sooner_than_one_that_broke_the_protocol(
    pair: "tuple[Probe, Probe]",
) -> None:
    one, _ = pair
    one.router.mesh[TOPIC] = silent(DEGREE_HIGH + 2)
    idle = ID(b"silent 0")
    one.router.scores.offended(trio.current_time(), str(idle), Offence.EXCESS, 8)
    _, prunes = one.router.mesh_heartbeat()
    told = {peer: one.router._back_off_of(peer, TOPIC) for peer in prunes}
    assert told.pop(idle) == one.router.prune_back_off
    assert set(told.values()) == {CROWDED_BACK_OFF}


async def test_two_nodes_of_which_one_says_nothing_keep_each_other(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapo_node.gossip.score.ACTIVATION_SECONDS", 0.0)
    speaker = await start(1)
    silent = await start(2, bootstrap=(speaker.address,))
    await until(lambda: mesh(speaker) and mesh(silent))
    for number in range(100):
        await speaker.publish(b"message %d" % number)
    await until(lambda: len(silent.heard) == 100)
    await trio.sleep(3.5)  # until no copy counts any more, and a heartbeat
    assert mesh(speaker) == {silent.network.peer_id}
    assert mesh(silent) == {speaker.network.peer_id}


async def test_a_node_goes_back_into_the_mesh_of_one_that_was_restarted(start: "Start", until: "Until") -> None:
    first = await start(1)
    second = await start(2, bootstrap=(first.address,))
    await until(lambda: mesh(first) and mesh(second))
    await second.stop()
    await until(lambda: not mesh(first))
    again = await start(2, bootstrap=(first.address,))
    await until(lambda: mesh(first) and mesh(again))
    assert score(first, again.network.peer_id) >= 0
