"""A swarm on virtual time: after any losses, all nodes know what each follows and hear each other."""

import pytest

from sapo_node.gossip.mesh import HIGH, LOW
from sapo_node.gossip.verdict import Verdict
from virtual_gossip import World, topic_of

SEEDS = range(4)
TOPICS = [topic_of(shard) for shard in range(3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_reaches_all_and_meshes_are_of_the_wanted_size(seed):
    world = World(seed)
    nodes = world.nodes_of(16)
    world.mesh_of(nodes, 8)
    for number in range(20):
        nodes[number % 16].publish(b"%d" % number)
        world.run(0.5)
    world.run(3)
    assert all(len(node.heard) + len([n for n in range(20) if nodes[n % 16] is node]) == 20 for node in nodes)
    assert all(LOW <= len(node.mesh()) <= HIGH + 2 for node in nodes)
    assert all(node.left == node.offences == [] for node in nodes)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_reaches_all_although_a_quarter_forwards_nothing(seed):
    world = World(seed)
    nodes = world.nodes_of(16)
    world.mesh_of(nodes, 6)
    for node in nodes[::4]:
        node.verdict = lambda _: Verdict.KEEP
    honest = [node for node in nodes if node not in nodes[::4]]
    for number in range(24):
        honest[number % 12].publish(b"%d" % number)
        world.run(0.5)
    world.run(5)
    assert all(len(node.heard) == 22 for node in honest)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_losses_nodes_know_what_each_follows_and_hear_each_other(seed):
    world = World(seed)
    nodes = world.nodes_of(world.rng.choice([2, 3, 4, 5]), topics=TOPICS)
    world.mesh_of(nodes)
    follows = {node.name: set(TOPICS) for node in nodes}

    def lose_stream(node, other):
        if node.has_stream_to(other):
            node.close(other)
            world.at(world.rng.uniform(0, 2), lambda: other.name in node.machine.peers and reopen(node, other))

    def reopen(node, other):
        if not node.has_stream_to(other):
            node.open(other)

    def lose_connection(node, other):
        world.hang_up(node, other)
        world.at(world.rng.uniform(0, 2), lambda: None if other.name in node.machine.peers else world.dial(node, other))

    def change_topics(node, _other):
        follows[node.name] = set(world.rng.sample(TOPICS, world.rng.randint(1, 3)))
        node.follow(*sorted(follows[node.name]))

    def talk(node, _other):
        node.publish(world.rng.randbytes(world.rng.choice([10, 2_000, 100_000])), world.rng.choice(TOPICS))

    for _ in range(40):
        node, other = world.rng.sample(nodes, 2)
        world.rng.choice([lose_stream, lose_connection, change_topics, talk, talk])(node, other)
        world.run(world.rng.choice([0.0, 0.02, 0.3, 1.0]))
    world.run(20)
    for node in nodes:
        assert all(node.machine.peers[other.name].follows == follows[other.name] for other in nodes if other != node)
        assert node.offences == node.left == []
    for number, node in enumerate(nodes):
        topic = min(follows[node.name])
        node.publish(b"from %d" % number, topic)
        world.run(3)
        hears = [other for other in nodes if other is not node and topic in follows[other.name]]
        assert all(b"from %d" % number in other.heard for other in hears)


def test_two_runs_with_one_seed_are_one_run():
    def record():
        world = World(3)
        nodes = world.nodes_of(12)
        world.mesh_of(nodes, 5)
        for number in range(10):
            nodes[number].publish(b"%d" % number)
            world.run(1)
        return [(node.heard, node.senders, sorted(node.mesh()), node.sent_bytes) for node in nodes]

    assert record() == record()
