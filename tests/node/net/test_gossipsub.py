"""What a crowd of strangers cannot take from the router."""

import time
from typing import TYPE_CHECKING

import pytest
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

if TYPE_CHECKING:
    from tests.node.net.conftest import Probe, Start, Until

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"


def name(probe: "Probe") -> ID:
    return ID.from_string(probe.network.peer_id)


async def test_own_messages_go_to_those_outside_of_the_mesh_and_others_messages_do_not(
    pair: "tuple[Probe, Probe]",
) -> None:
    one, two = pair
    me, stranger = name(one), ID(b"stranger")
    one.router.mesh[TOPIC].clear()
    assert name(two) in one.router._get_peers_to_send([TOPIC], me, me)
    assert name(two) not in one.router._get_peers_to_send([TOPIC], stranger, stranger)


async def test_a_peer_in_back_off_is_still_told_what_there_is(pair: "tuple[Probe, Probe]") -> None:
    one, two = pair
    one.router.mesh[TOPIC].clear()
    one.router._add_back_off(name(two), TOPIC, is_unsubscribe=False)
    one.router.mcache.put(rpc_pb2.Message(data=b"m", topicIDs=[TOPIC]))
    assert name(two) in one.router.gossip_heartbeat()


async def test_a_clock_that_was_a_day_ahead_for_a_moment_keeps_no_peer_out_of_the_mesh(
    pair: "tuple[Probe, Probe]", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda at=time.time: at() + 86_400)
        one.router._add_back_off(name(two), TOPIC, is_unsubscribe=False, backoff_duration=1)
    assert one.router._check_back_off(name(two), TOPIC)
    await until(lambda: not one.router._check_back_off(name(two), TOPIC))


async def test_those_we_dialled_are_not_pruned_for_strangers(start: "Start", until: "Until") -> None:
    dialled = [await start(number) for number in (2, 3)]
    one = await start(1, bootstrap=tuple(each.address for each in dialled))
    await until(lambda: one.sees(*dialled))
    unknown_peers = {ID(b"stranger %d" % number) for number in range(10)}
    one.router.mesh[TOPIC] = unknown_peers | {name(each) for each in dialled}
    pruned = one.router._select_peers_for_pruning(TOPIC, 6)
    assert len(pruned) == 6
    assert set(pruned) < unknown_peers


async def test_those_we_dialled_are_asked_into_a_mesh_of_others(start: "Start", until: "Until") -> None:
    dialled = await start(2)
    one = await start(1, bootstrap=(dialled.address,))
    others = [await start(number, bootstrap=(one.address,)) for number in (3, 4, 5, 6)]
    await until(lambda: one.sees(dialled, *others))
    one.router.mesh[TOPIC].clear()
    one.router.mesh[TOPIC].update(name(each) for each in others)
    grafts, _ = one.router.mesh_heartbeat()
    assert grafts[name(dialled)] == [TOPIC]
