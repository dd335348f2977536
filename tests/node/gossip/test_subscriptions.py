"""Which topics a peer follows, whatever becomes of its streams, and what the node tells of its own."""

from sapo_node.gossip.actions import Foreign, Joined
from virtual_gossip import Attacker, World, topic_of

TOPICS = [topic_of(shard) for shard in range(4)]


def shards(node, peer):
    known = node.machine.peers[peer.name].follows
    return {shard for shard, topic in enumerate(TOPICS) if topic in known}


def met(**settings):
    world = World()
    node, peer = world.node(1, topics=TOPICS, **settings), Attacker(world)
    world.dial(peer, node)
    return world, node, peer


def test_the_stream_that_began_last_counts_until_it_ends():
    world, node, peer = met()
    peer.open(node)
    old, new = 0, 1
    peer.subscribe(node, TOPICS[0], stream=old)
    world.run(1)
    assert shards(node, peer) == {0}
    peer.subscribe(node, TOPICS[1], stream=new)
    world.run(1)
    assert shards(node, peer) == {1}
    peer.subscribe(node, TOPICS[2], stream=old)
    peer.subscribe(node, TOPICS[3], stream=new)
    world.run(1)
    assert shards(node, peer) == {1, 3}
    node.ended(peer.name, peer.streams[node.name][new])
    assert shards(node, peer) == {0, 2}


def test_a_peer_whose_last_stream_ended_follows_what_it_followed_until_it_is_gone():
    world, node, peer = met()
    peer.subscribe(node, TOPICS[1])
    world.run(1)
    node.ended(peer.name, peer.streams[node.name][0])
    assert shards(node, peer) == {1}
    peer.open(node)
    assert shards(node, peer) == {1}
    world.hang_up(peer, node)
    assert not any(topic.followers or topic.mesh for topic in node.machine.topics.values())


def test_topics_that_no_swarm_of_ours_has_are_not_kept_and_another_swarm_is_noticed_once():
    world, node, peer = met()
    peer.subscribe(node, b"unknown", b"/sapo/2/" + b"cd" * 32 + b"/rollouts/0", b"\xff", b"")
    world.run(1)
    assert node.machine.peers[peer.name].follows == set()
    assert node.notices == [Foreign(peer.name, "cd" * 32)]
    peer.subscribe(node, TOPICS[0])
    peer.subscribe(node, TOPICS[1])
    world.run(1)
    assert node.notices[1:] == [Joined(peer.name)]


def test_a_node_hears_what_it_follows_and_publishes_where_it_does_not():
    world = World()
    one, two = world.nodes_of(2, topics=TOPICS)
    world.mesh_of([one, two])
    two.follow(TOPICS[1], TOPICS[2])
    world.run(1)
    for number, topic in enumerate(TOPICS):
        one.publish(b"%d" % number, topic)
    two.publish(b"elsewhere", TOPICS[3])
    world.run(1)
    assert sorted(two.heard) == [b"1", b"2"]
    assert one.heard == [b"elsewhere"]
    assert shards(one, two) == {1, 2}
    assert one.mesh(TOPICS[0]) == two.mesh(TOPICS[0]) == set()
    two.follow(TOPICS[0])
    world.run(15)
    assert shards(one, two) == {0}
    assert one.mesh(TOPICS[0]) == {two.name}


def test_a_sender_that_does_not_know_yet_that_we_left_is_no_offender():
    world = World()
    one, two = world.nodes_of(2, topics=TOPICS)
    world.mesh_of([one, two])
    for number in range(20):
        two.follow(TOPICS[number % 4])
        one.publish(b"%d" % number, TOPICS[(number - 1) % 4])
        world.run(0.05)
    world.run(2)
    assert two.offences == one.offences == []
    assert two.left == one.left == []
    assert not two.refuses(one)


def test_topics_that_change_while_there_is_no_stream_are_told_on_the_next():
    world = World()
    one, two = world.nodes_of(2, topics=TOPICS)
    world.mesh_of([one, two])
    one.close(two)
    one.follow(TOPICS[3])
    one.open(two)
    world.run(1)
    assert shards(two, one) == {3}
