"""What becomes of a message: whom the node asks, who gets it, and who is charged for it."""

import pytest

from sapo_node.gossip import outbox
from sapo_node.gossip.defences import GossipDefences
from sapo_node.gossip.rates import PARTS_AT_ONCE, PARTS_PER_SECOND
from sapo_node.gossip.recent import OFFERED_BEATS
from sapo_node.gossip.rpc import IWant, Rpc
from sapo_node.gossip.seen import message_id
from sapo_node.gossip.verdict import Verdict
from virtual_gossip import LIMIT, TOPIC, Attacker, World, topic_of

LARGE = bytes(120_000)


@pytest.fixture
def world():
    return World()


def in_a_row(world, **settings):
    """Three nodes, of which the ends are connected with the middle only."""
    left, middle, right = world.nodes_of(3, **settings)
    world.dial(left, middle)
    world.dial(middle, right)
    world.run(3)
    return left, middle, right


def attacked(world):
    node, mallory = world.node(1), Attacker(world)
    world.dial(mallory, node)
    mallory.subscribe(node)
    world.run(3)
    return node, mallory


def test_an_accepted_message_goes_on_to_a_third_node_and_not_back(world):
    left, middle, right = in_a_row(world)
    left.publish(b"m")
    world.run(1)
    assert (left.heard, middle.heard, right.heard) == ([], [b"m"], [b"m"])
    assert (middle.senders, right.senders) == ([left.name], [middle.name])
    assert (left.copies, middle.copies, right.copies) == (1, 1, 0)


@pytest.mark.parametrize("verdict", [Verdict.KEEP, Verdict.IGNORE, Verdict.BUSY, Verdict.REJECT])
def test_a_message_that_is_not_accepted_stops_at_the_node(verdict, world):
    left, middle, right = in_a_row(world)
    middle.verdict = lambda _: verdict
    left.publish(b"m")
    world.run(10)
    assert (middle.heard[0], right.heard) == (b"m", [])


def test_a_message_that_the_node_had_no_time_for_is_taken_from_the_next_peer_that_brings_it(world):
    node, mallory = attacked(world)
    friend = Attacker(world, 201)
    world.dial(friend, node)
    node.verdict = lambda _: Verdict.BUSY
    mallory.publish(node, message := mallory.message(b"m"))
    world.run(1)
    node.verdict = lambda _: Verdict.ACCEPT
    friend.publish(node, message)
    world.run(1)
    assert node.senders == [mallory.name, friend.name]


@pytest.mark.parametrize("seed", range(5))
def test_copies_that_arrive_while_the_node_decides_are_no_further_question(seed):
    world = World(seed)
    nodes = world.nodes_of(8)
    for node in nodes:
        node.thinks = 0.5
    world.mesh_of(nodes)
    nodes[0].publish(b"m")
    world.run(5)
    assert [node.heard for node in nodes] == [[], *[[b"m"]] * 7]


def test_a_content_that_was_refused_on_one_topic_is_taken_on_its_own(world):
    left, middle, right = in_a_row(world, topics=(TOPIC, topic_of(1)))
    middle.verdict = lambda _: Verdict.REJECT
    left.publish(b"m", topic_of(1))
    world.run(1)
    middle.verdict = lambda _: Verdict.ACCEPT
    left.publish(b"m")
    world.run(1)
    assert (middle.heard, right.heard) == ([b"m", b"m"], [b"m"])


def test_a_message_that_is_published_again_reaches_who_came_later(world):
    early, late = world.nodes_of(2)
    early.publish(b"m")
    world.run(OFFERED_BEATS + 3)
    world.dial(late, early)
    world.run(3)
    assert late.heard == []
    early.publish(b"m")
    world.run(1)
    assert late.heard == [b"m"]


def test_the_largest_message_passes_and_a_larger_one_is_charged(world):
    node, mallory = attacked(world)
    mallory.publish(node, mallory.message(bytes(LIMIT)))
    mallory.publish(node, mallory.message(bytes(LIMIT + 1)))
    world.run(1)
    assert [len(data) for data in node.heard] == [LIMIT]
    assert node.offences == [(mallory.name, "message too large")]


@pytest.mark.parametrize("topics", [[], [TOPIC, TOPIC], [TOPIC, topic_of(1)]])
def test_a_message_in_no_topic_or_in_several_is_charged(topics, world):
    node, mallory = attacked(world)
    mallory.publish(node, mallory.message(b"m", topics=topics))
    world.run(1)
    assert (node.heard, node.offences) == ([], [(mallory.name, "message in several topics")])


def test_a_forged_copy_is_charged_and_does_not_use_up_the_question(world):
    node, mallory = attacked(world)
    good, forged = mallory.message(b"m"), mallory.message(b"m")
    forged.signature = bytes(64)
    mallory.publish(node, forged)
    mallory.publish(node, good)
    world.run(1)
    assert (node.heard, node.offences) == ([b"m"], [(mallory.name, "bad gossip signature")])


def test_a_message_that_some_libraries_take_stops_here_and_is_charged_to_nobody(world):
    node, mallory = attacked(world)
    mallory.publish(node, mallory.message(b"m", seqno=b""))
    world.run(1)
    assert (node.heard, node.offences) == ([], [])


def test_a_peer_that_floods_copies_waits_and_is_neither_charged_nor_disconnected(world):
    node, mallory = attacked(world)
    copies = [mallory.message(b"copy")] * 50
    for _ in range(400):
        mallory.publish(node, *copies)
    mallory.publish(node, mallory.message(b"behind them"))
    world.run((400 * 50 - PARTS_AT_ONCE) / PARTS_PER_SECOND - 1)
    assert node.heard == [b"copy"]
    world.run(3)
    assert node.heard == [b"copy", b"behind them"]
    assert node.offences == node.left == []


def test_own_messages_go_to_those_outside_of_the_mesh_and_messages_of_others_do_not(world):
    left, middle, right = in_a_row(world)
    middle.machine.topics[TOPIC].pruned(right.name, 600, world.now)
    right.machine.topics[TOPIC].pruned(middle.name, 600, world.now)
    left.publish(b"of another")
    world.run(0.15)
    assert right.heard == []
    middle.publish(b"own")
    world.run(0.15)
    assert b"own" in right.heard
    world.run(2)
    assert b"of another" in right.heard  # offered and requested, although the peer is in back-off


@pytest.mark.parametrize(("defence", "heard"), [("flood_publishing", [b"of another"]), ("gossip_repair", [b"own"])])
def test_without_its_defence_one_of_them_does_not_arrive(defence, heard, world):
    left, middle, right = in_a_row(world, defences=GossipDefences(**{defence: False}))
    middle.machine.topics[TOPIC].pruned(right.name, 600, world.now)
    right.machine.topics[TOPIC].pruned(middle.name, 600, world.now)
    if defence == "gossip_repair":
        middle.publish(b"own")
    left.publish(b"of another")
    world.run(5)
    assert right.heard == heard


def test_a_new_follower_gets_the_messages_of_the_last_seconds_however_large(world):
    speaker, late = world.nodes_of(2)
    said = [b"%02d" % number + LARGE for number in range(25)]
    for message in said:
        speaker.publish(message)
        world.run(0.1)
    world.dial(late, speaker)
    world.run(2)
    assert sorted(late.heard) == said


def test_a_peer_that_follows_a_topic_again_and_again_gets_a_message_once_in_a_heartbeat(world):
    node, mallory = attacked(world)
    node.publish(LARGE)
    world.run(1)
    mallory.received.clear()
    for _ in range(100):
        mallory.subscribe(node, on=False)
        mallory.subscribe(node)
    world.run(1.5)
    assert 1 <= len(mallory.published) <= 3


def test_messages_that_are_too_large_for_one_rpc_together_are_sent_in_an_rpc_each(world):
    """A peer need not take an RPC of more than `max_message_bytes` and 2,000 bytes (spec: topics and validation)."""
    node, mallory = attacked(world)
    wanted = [b"%d" % number + 4 * LARGE for number in range(4)]
    for data in wanted:
        node.publish(data)
    world.run(1)
    mallory.received.clear()
    mallory.control(node, iwant=[IWant(ids=[message_id(TOPIC, data) for data in wanted])])
    world.run(1)
    assert sorted(message.data for message in mallory.published) == wanted
    assert max(rpc.ByteSize() for rpc in mallory.received) <= LIMIT + 2_000


def test_what_was_lost_with_a_stream_is_sent_on_the_next(world):
    one, other = world.nodes_of(2)
    world.mesh_of([one, other])
    one.close(other)
    one.publish(b"m")
    world.run(0.5)
    assert other.heard == []
    one.open(other)
    world.run(0.5)
    assert other.heard == [b"m"]


def test_a_peer_that_does_not_read_loses_its_connection_when_the_queues_are_full_and_the_others_get_all(
    world, monkeypatch
):
    monkeypatch.setattr(outbox, "ALL_QUEUED_BYTES", 2_000_000)
    node, reader, stopped = world.nodes_of(3)
    world.mesh_of([node, reader, stopped])
    world.silent.add(stopped.name)
    for number in range(30):
        node.publish(b"%d" % number + bytes(100_000))
        world.run(0.2)
    assert node.left == [(stopped.name, "it reads too slowly, and the queues are full")]
    assert len(reader.heard) == 30


def test_a_peer_that_left_while_the_node_decided_leaves_nothing_behind(world):
    node, mallory = attacked(world)
    node.thinks = 1.0
    rpc = Rpc(publish=[mallory.message(b"m")])
    rpc.control.graft.add(topic=TOPIC)
    mallory.send(node, rpc)
    world.run(0.5)
    world.hang_up(mallory, node)
    world.run(3)
    topic = node.machine.topics[TOPIC]
    assert (node.heard, topic.mesh, topic.followers) == ([b"m"], set(), set())


def test_a_message_that_was_sent_on_a_lost_stream_is_sent_again_on_the_next_in_the_same_heartbeat(world):
    node, mallory = world.node(1), Attacker(world)
    node.publish(b"m")
    world.dial(mallory, node)
    mallory.subscribe(node)
    world.run(0.15)
    node.close(mallory)
    node.open(mallory)
    world.run(0.2)
    assert [message.data for message in mallory.published] == [b"m", b"m"]
