"""Gossip among many peers: meshes as nodes make them, and one message's way through them."""

import json
import random
from dataclasses import replace

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

from research.fetching import Load
from research.gossip_cost import played
from research.gossip_cost.__main__ import gossip_cost
from research.gossip_cost.company import parted
from research.gossip_cost.cost import Swarm, measure
from research.gossip_cost.overlay import Peer, overlay
from research.gossip_cost.spread import Wire, send
from sapo_node.app.node import PARTS
from sapo_node.gossip.mesh import DIALLED, HIGH, LOW
from sapo_node.ingest.shards import MESSAGES_PER_SECOND
from sapo_node.net.dialer import ENOUGH as DIALS
from sapo_node.net.dialer import MOST
from sapo_node.net.host import CONNECTIONS
from sapo_node.net.interface import TARGET_PEERS

COUNT = 150


@pytest.fixture(scope="module")
def peers():
    return overlay(COUNT, random.Random(1))


def test_a_mesh_has_both_ends_and_the_size_that_nodes_keep(peers):
    for number, peer in enumerate(peers):
        assert all(number in peers[other].mesh for other in peer.mesh)
        assert peer.mesh <= peer.connected
        assert LOW <= len(peer.mesh) <= HIGH
        assert len(peer.mesh & peer.dialled) >= min(DIALLED, len(peer.dialled))
        assert len(peer.connected) <= CONNECTIONS
        assert len(peer.dialled) == min(number, DIALS)


def test_without_loss_everybody_has_a_message_and_nobody_asks(peers):
    way = send(peers, 3, 1024, Wire(loss=0.0), random.Random(2))
    assert len(way.times) == COUNT - 1
    assert way.copies >= COUNT - 1


def test_what_is_lost_is_offered_and_asked_for(peers):
    way = send(peers, 3, 1024, Wire(loss=0.6), random.Random(2))
    assert len(way.times) > 0.95 * COUNT
    assert way.asked > 0


def test_a_message_takes_longer_where_links_are_longer(peers):
    near, far = (send(peers, 3, 1024, Wire(delay=delay), random.Random(2)) for delay in (0.01, 0.2))
    assert far.times[-1] > near.times[-1]


def test_a_swarm_twice_as_large_costs_each_node_twice_as_much_on_one_topic():
    small = Swarm(100, 30.0, 32)
    once, twice = (measure(swarm, seed=1) for swarm in (small, replace(small, peers=200)))
    assert twice["cpu"] == pytest.approx(2 * once["cpu"], rel=0.2)


def test_on_many_shards_a_swarm_twice_as_large_costs_a_node_no_more():
    large = Swarm(600, 8.0, 32, shards=32)
    once, twice = (measure(swarm, seed=1) for swarm in (large, replace(large, peers=1_200)))
    assert once["heard"] > twice["heard"] >= 1
    assert max(once["messages_per_second"], twice["messages_per_second"]) <= MESSAGES_PER_SECOND
    assert twice["reached"] > 0.98


def test_a_small_swarm_follows_every_shard():
    assert Swarm(100, 30.0, 32, shards=32).heard == 32


@pytest.fixture(scope="module")
def seekers():
    return parted(400, shards=8, heard=2, rng=random.Random(1))


def test_those_who_follow_a_part_find_company_for_all_of_it(seekers):
    assert seekers.seconds[int(0.99 * len(seekers.seconds))] < 60
    companies = [
        sum(shard in seekers.seekers[other].follows for other in seeker.connected)
        for seeker in seekers.seekers
        for shard in seeker.follows
    ]
    assert sum(count >= TARGET_PEERS for count in companies) > 0.99 * len(companies)


def test_nobody_dials_or_takes_more_than_a_node_does(seekers):
    assert all(len(seeker.dialled) <= MOST for seeker in seekers.seekers)
    assert all(len(seeker.connected) <= CONNECTIONS for seeker in seekers.seekers)
    assert all(
        number in seekers.seekers[other].connected
        for number, seeker in enumerate(seekers.seekers)
        for other in seeker.connected
    )


def test_the_followers_of_a_shard_are_connected_as_they_were_in_the_swarm(seekers):
    followers = seekers.followers(3)
    assert len(followers) == sum(3 in seeker.follows for seeker in seekers.seekers)
    assert all(
        number in followers[other].connected for number, each in enumerate(followers) for other in each.connected
    )


def test_a_swarm_whose_peers_find_no_company_in_time_has_no_time_to_tell():
    assert measure(Swarm(300, 1.0, 32, shards=32), seed=1)["seconds_to_company"] is None


def test_who_cannot_keep_up_has_no_time_to_tell():
    found = measure(Swarm(60, 0.1, 128), seed=1)
    assert found["cpu"] > 1
    assert found["seconds_to_99"] is None


def test_the_command_writes_what_it_shows(tmp_path):
    arguments = ["--peers", "40", "--output", str(tmp_path), "--json"]
    done = CliRunner().invoke(gossip_cost, arguments, catch_exceptions=False)
    written = json.loads((tmp_path / "gossip_cost.json").read_text())
    assert json.loads(done.stdout) == written
    assert [(each["peers"], each["fetches"]) for each in written["swarms"]] == [(40, False), (40, True)]


def test_peers_of_a_large_swarm_publish_fewer_rounds_and_those_of_a_small_one_all():
    assert Swarm(100, 30.0, 32, fetches=True).by_need(16).interval == 1
    assert Swarm(4_000, 30.0, 32, fetches=True).by_need(16).interval == 8


def test_a_node_that_fetches_receives_a_twelfth_of_what_whole_messages_bring():
    whole, bare = (measure(Swarm(100, 30.0, 32, fetches=each), seed=1) for each in (False, True))
    assert bare["bytes_per_second"] < whole["bytes_per_second"] / 12
    assert 0 < bare["body_bytes_per_second"] < bare["bytes_per_second"]


def test_the_hops_of_a_message_are_those_of_its_first_copy():
    line = [Peer(connected={1}, mesh={1}), Peer(connected={0, 2}, mesh={0, 2}), Peer(connected={1}, mesh={1})]
    assert send(line, 0, 1_000, Wire(loss=0.0), random.Random(2)).hops == 1.5


@pytest.mark.slow
def test_a_played_swarm_receives_what_its_bodies_weigh_and_as_many_copies_as_its_meshes_send():
    small, large = (
        trio.run(played.play, 12, Load(2, size, 1), 1, PARTS, clock=MockClock(autojump_threshold=0))
        for size in (60, 1_000)
    )
    assert small["came"] == large["came"] == 1.0
    assert large["by_kind"]["bodies"] > 5 * small["by_kind"]["bodies"]
    of_a_copy = [each["by_kind"]["messages"] / each["copies"] for each in (small, large)]
    assert of_a_copy[1] == pytest.approx(of_a_copy[0], rel=0.1)
    assert 1 < large["copies"] < HIGH
