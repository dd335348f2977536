"""The mesh of one node: who gets a place in it, who keeps it, and who does not."""

import random
from collections import defaultdict

import pytest

from sapo_node.gossip.defences import DEFENDED
from sapo_node.gossip.mesh import (
    BACK_OFF,
    BACK_OFF_SLACK,
    CROWDED_BACK_OFF,
    DEGREE,
    DIALLED,
    HIGH,
    LONGEST_BACK_OFF,
    LOW,
    OPPORTUNITY_BEATS,
    OPPORTUNITY_PEERS,
    Swarm,
    Topic,
)
from sapo_node.gossip.outbox import Outbox, Outboxes
from sapo_node.gossip.peers import Peer
from sapo_node.gossip.rpc import Frames, decode
from sapo_node.gossip.score import Offence, Scores
from sapo_node.gossip.verdict import Verdict
from virtual_gossip import TOPIC, World, topic_of

SEEDS = range(10)


class Mesh(Topic):
    """The mesh of a node whose peers can be written to."""

    def __init__(self, seed=0, defences=DEFENDED):
        self.swarm = Swarm({}, Scores(), random.Random(seed), defences)
        super().__init__(TOPIC, 100, self.swarm)
        self.is_followed = True

    def add(self, kind, count, *, outbound=False, inside=False):
        names = [f"{kind} {number}" for number in range(count)]
        for name in names:
            box = Outbox(name, Outboxes())
            box.open()
            self.swarm.peers[name] = Peer(name, name.encode(), outbound, box)
        self.followers.update(names)
        if inside:
            self.mesh.update(names)
        return names

    def offend(self, peer, now=0.0, times=8):
        self.swarm.scores.offended(now, peer, Offence.EXCESS, times)

    def deliver(self, peer, now=0.0):
        self.swarm.scores.delivered(now, TOPIC, [peer], ())

    def told(self):
        """By peer: None for a GRAFT, or the seconds of a PRUNE."""
        found = {}
        for name, peer in self.swarm.peers.items():
            for frame in Frames().feed(peer.outbox.next_frame()):
                control = decode(frame).control
                found.update(dict.fromkeys([name] * len(control.graft)))
                found.update((name, prune.backoff) for prune in control.prune)
        return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mesh_is_filled_to_its_degree_when_it_is_too_small_and_pruned_to_it_when_it_is_too_large(seed):
    small, large = Mesh(seed), Mesh(seed)
    small.add("peer", 20)
    small.mesh.update(list(small.followers)[: LOW - 1])
    small.tend(1, 0.0)
    assert len(small.mesh) == DEGREE
    large.add("peer", HIGH + 1, inside=True)
    large.tend(1, 0.0)
    assert len(large.mesh) == DEGREE
    assert set(large.told().values()) == {CROWDED_BACK_OFF}


def test_a_mesh_between_the_limits_is_left_as_it_is():
    mesh = Mesh()
    mesh.add("inside", LOW, inside=True)
    mesh.add("outside", 10)
    mesh.tend(1, 0.0)
    assert mesh.told() == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_those_we_dialled_are_not_pruned_for_strangers(seed):
    mesh = Mesh(seed)
    dialled = mesh.add("dialled", DIALLED, outbound=True, inside=True)
    mesh.add("stranger", HIGH, inside=True)
    mesh.tend(1, 0.0)
    assert set(dialled) < mesh.mesh


def test_those_we_dialled_are_asked_into_a_mesh_of_strangers():
    mesh = Mesh()
    mesh.add("stranger", DEGREE, inside=True)
    dialled = mesh.add("dialled", 5, outbound=True)
    mesh.tend(1, 0.0)
    assert len(mesh.mesh & set(dialled)) == DIALLED


@pytest.mark.parametrize("seed", SEEDS)
def test_those_who_delivered_most_keep_their_places_in_a_crowd(seed):
    mesh = Mesh(seed)
    best = mesh.add("best", 4, inside=True)
    mesh.add("crowd", HIGH, inside=True)
    for peer in best:
        mesh.deliver(peer)
    mesh.tend(1, 0.0)
    assert set(best) < mesh.mesh


def test_a_peer_with_a_negative_score_is_pruned_for_longer_than_one_that_had_no_room():
    mesh = Mesh()
    bad, *_ = mesh.add("peer", HIGH + 2, inside=True)
    mesh.offend(bad)
    mesh.tend(1, 0.0)
    told = mesh.told()
    assert told.pop(bad) == BACK_OFF
    assert set(told.values()) == {CROWDED_BACK_OFF}


def test_a_back_off_ends_a_little_after_the_peer_was_told():
    mesh = Mesh()
    (peer,) = mesh.add("peer", 1, inside=True)
    mesh.offend(peer)
    mesh.tend(1, 0.0)
    mesh.swarm.scores.__init__()
    for now in range(1, BACK_OFF + BACK_OFF_SLACK):
        mesh.tend(1, float(now))
        assert mesh.mesh == set()
    mesh.tend(1, float(BACK_OFF + BACK_OFF_SLACK))
    assert mesh.mesh == {peer}


def test_two_dialled_peers_that_only_look_idle_are_spared_and_offenders_are_not():
    mesh = Mesh()
    idle = mesh.add("idle", DIALLED, outbound=True, inside=True)
    (offender,) = mesh.add("offender", 1, outbound=True, inside=True)
    mesh.add("honest", 4, inside=True)
    for number in range(400):  # an attacker that sends to this node alone
        mesh.swarm.scores.delivered(40.0 + number, TOPIC, ["honest 0"], mesh.mesh)
    mesh.offend(offender, 440.0)
    assert all(mesh.swarm.score(peer, 440.0) < 0 for peer in idle)
    mesh.tend(1, 440.0)
    assert set(idle) <= mesh.mesh
    assert offender not in mesh.mesh


def test_a_full_mesh_in_which_nobody_delivers_takes_in_a_peer_that_does_at_once():
    for beat in (1, OPPORTUNITY_BEATS):
        mesh = Mesh()
        mesh.add("silent", HIGH, inside=True)
        useful = mesh.add("useful", 1)
        mesh.deliver(useful[0])
        mesh.tend(beat, 0.0)
        assert mesh.told() == {useful[0]: None}


def test_a_mesh_in_which_somebody_delivers_is_improved_in_its_turn_and_if_it_has_room():
    found = defaultdict(int)
    for count in (HIGH - 1, HIGH):
        for beat in (1, OPPORTUNITY_BEATS):
            mesh = Mesh()
            mesh.add("silent", count, inside=True)
            useful = mesh.add("useful", 5)
            for peer in ("silent 0", *useful):
                mesh.deliver(peer)
            mesh.tend(beat, 0.0)
            found[count, beat] = len(mesh.told())
    assert found == {
        (HIGH - 1, 1): 0,
        (HIGH - 1, OPPORTUNITY_BEATS): OPPORTUNITY_PEERS,
        (HIGH, 1): 0,
        (HIGH, OPPORTUNITY_BEATS): 0,
    }


def test_a_graft_is_accepted_and_refused_in_back_off_and_with_a_negative_score():
    mesh = Mesh()
    good, early, bad = mesh.add("peer", 3)
    mesh.pruned(early, 0, 0.0)
    mesh.offend(bad)
    for peer in (good, early, bad):
        mesh.grafted(peer, 10.0)
    assert mesh.mesh == {good}
    assert mesh.told() == {early: BACK_OFF, bad: BACK_OFF}


def test_one_early_graft_is_tolerated_and_ten_are_not_and_one_at_the_end_of_the_back_off_is_not_early():
    mesh = Mesh()
    one, many, late = mesh.add("peer", 3)
    for peer in (one, many, late):
        mesh.pruned(peer, 60, 0.0)
    mesh.grafted(one, 1.0)
    mesh.grafted(late, 60.0 - BACK_OFF_SLACK)
    for _ in range(10):
        mesh.grafted(many, 1.0)
    assert mesh.swarm.score(one, 1.0) >= 0 > mesh.swarm.score(many, 1.0)
    assert late in mesh.mesh


def test_a_peer_keeps_us_out_of_its_mesh_for_ten_minutes_at_most():
    mesh = Mesh()
    (peer,) = mesh.add("peer", 1, inside=True)
    mesh.pruned(peer, 2**62, 0.0)
    mesh.tend(1, LONGEST_BACK_OFF - 1.0)
    assert mesh.mesh == set()
    mesh.tend(1, float(LONGEST_BACK_OFF))
    assert mesh.mesh == {peer}


def test_back_offs_are_bounded():
    mesh = Mesh()
    for number in range(3_000):
        mesh.keep_out(f"peer {number}", 60.0, 0.0)
    assert len(mesh._back_off) == 1024


# Over links.


@pytest.mark.parametrize("seed", range(2))
def test_a_peer_that_never_forwards_loses_its_place_and_nothing_else_also_if_it_serves_another_topic(seed):
    """CVE-2022-47547: what a peer does on one topic must not excuse what it does not do on another."""
    world = World(seed)
    topics = TOPIC, topic_of(1)
    victim, idle, *honest = world.nodes_of(6, topics=topics)
    world.mesh_of([victim, idle, *honest])
    idle.verdict = lambda data: Verdict.ACCEPT if data.startswith(b"other") else Verdict.IGNORE
    honest[0].publish(b"m")
    world.run(35)  # until deliveries are expected of all
    for number in range(180):
        honest[number % 4].publish(b"m%d" % number)
        idle.publish(b"other %d" % number, topics[1])
        world.run(0.1)
    world.run(4)
    assert idle.name not in victim.mesh()
    assert victim.score(idle) < 0
    assert idle.name in victim.machine.peers
    assert all(each.name in victim.mesh() for each in honest)
    assert all(victim.score(each) >= 0 for each in honest)
    heard = len(idle.heard)
    victim.publish(b"to all")
    world.run(1)
    assert idle.heard[heard:] == [b"to all"]


def test_two_nodes_of_which_one_says_nothing_keep_each_other():
    world = World()
    speaker, silent = world.nodes_of(2)
    world.mesh_of([speaker, silent])
    world.run(35)
    for number in range(200):
        speaker.publish(b"%d" % number)
        world.run(0.1)
    world.run(4)
    assert len(silent.heard) == 200
    assert (speaker.mesh(), silent.mesh()) == ({silent.name}, {speaker.name})


def test_a_peer_that_comes_back_is_in_the_mesh_again():
    world = World()
    one, other = world.nodes_of(2)
    world.mesh_of([one, other])
    world.hang_up(one, other)
    assert one.mesh() == set()
    world.dial(other, one)
    world.run(3)
    assert (one.mesh(), other.mesh()) == ({other.name}, {one.name})
    assert one.score(other) >= 0


def test_a_graft_that_was_lost_with_a_stream_is_sent_on_the_next():
    world = World()
    one, other = world.nodes_of(2)
    world.mesh_of([one, other])
    topic = other.machine.topics[TOPIC]
    topic.mesh.clear()
    topic.keep_out(one.name, BACK_OFF_SLACK - 1.0, world.now)  # so that no heartbeat of its own takes us in
    one.close(other)
    one.open(other)
    world.run(1)
    assert topic.mesh == {one.name}
