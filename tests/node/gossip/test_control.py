"""Control messages beyond measure: each kind costs its sender the mesh place and the connection (`control-spam`)."""

import pytest

from sapo_node.gossip import machine
from sapo_node.gossip.machine import ASKED_IDS, PROMISE_SECONDS
from sapo_node.gossip.rpc import Graft, IHave, IWant, Prune, Rpc
from sapo_node.gossip.score import Offence
from sapo_node.gossip.seen import message_id
from sapo_protocol.limits import MAX_SHARDS
from virtual_gossip import TOPIC, Attacker, World, topic_of


def ids(count):
    return [number.to_bytes(32, "big") for number in range(count)]


FLOODS = {
    "IHAVE": {"ihave": [IHave(topic=TOPIC, ids=ids(50))] * 10},
    "IWANT": {"iwant": [IWant(ids=ids(64))]},
    "GRAFT": {"graft": [Graft(topic=TOPIC)] * 10},
    "GRAFT of a topic that we do not follow": {"graft": [Graft(topic=b"unknown")]},
    "PRUNE of a topic that we do not follow": {"prune": [Prune(topic=b"unknown")] * 10},
    "IDONTWANT": {"idontwant": [b"\x0a\x01m"]},
    "nothing at all": {},
}


class Siege:
    """A node with one honest peer and an attacker, which is in the node's mesh."""

    def __init__(self, **settings):
        self.world = World()
        self.node, self.honest = self.world.nodes_of(2, **settings)
        self.mallory = Attacker(self.world)
        self.world.dial(self.honest, self.node)
        self.world.dial(self.mallory, self.node)
        self.mallory.subscribe(self.node)
        self.mallory.control(self.node, graft=[Graft(topic=TOPIC)])
        self.world.run(3)
        assert self.mallory.name in self.node.mesh()

    def wanted(self):
        return [key for rpc in self.mallory.received for iwant in rpc.control.iwant for key in iwant.ids]


@pytest.fixture
def siege():
    return Siege()


@pytest.mark.parametrize("kind", FLOODS)
def test_who_floods_is_disconnected_and_refused_for_two_minutes_and_an_honest_peer_is_not(kind, siege):
    world, node, mallory = siege.world, siege.node, siege.mallory
    for _ in range(3_000):
        mallory.control(node, **FLOODS[kind])
    world.run(10)
    assert node.left == [(mallory.name, "too many control messages")]
    assert mallory.name not in node.mesh()
    world.run(100)
    assert node.refuses(mallory)
    world.run(30)
    assert not node.refuses(mallory)
    assert node.score(mallory) < 0
    assert siege.honest.name in node.mesh()
    assert node.score(siege.honest) >= 0


def test_an_rpc_above_a_limit_costs_the_connection_at_once(siege):
    siege.mallory.send(siege.node, Rpc(publish=[siege.mallory.message(b"m")] * 65))
    siege.world.run(1)
    assert siege.node.offences == [(siege.mallory.name, "65 messages in one RPC")]
    assert siege.mallory.name not in siege.node.machine.peers
    assert siege.node.heard == []


def test_bytes_that_are_no_rpc_cost_the_connection(siege):
    siege.mallory.send(siege.node, b"\xff" * 100)
    siege.world.run(1)
    assert siege.node.left == [(siege.mallory.name, "unreadable RPC")]


def test_who_keeps_several_streams_waiting_is_refused_and_who_keeps_one_may_come_back(siege):
    node, world = siege.node, siege.world
    patient = Attacker(world, 201)
    world.dial(patient, node)
    for _ in range(3):
        siege.mallory.open(node)
    for peer in (siege.mallory, patient):
        node.perform(node.machine.unfinished(peer.name, world.now))
    assert [node.refuses(peer) for peer in (siege.mallory, patient)] == [True, False]


def test_a_peer_has_four_streams_at_most(siege):
    opened = [siege.mallory.open(siege.node) for _ in range(5)]
    assert opened == [True, True, True, False, False]


def test_control_messages_of_unknown_topics_leave_nothing_behind(siege):
    prunes = [Prune(topic=b"topic %d" % number) for number in range(60)]
    siege.mallory.control(siege.node, prune=prunes)
    siege.mallory.control(siege.node, prune=[Prune(topic=TOPIC, backoff=2**62)])
    siege.world.run(1)
    assert list(siege.node.machine.topics) == [TOPIC]
    assert list(siege.node.machine.topics[TOPIC]._back_off) == [siege.mallory.name]


def test_a_graft_of_a_topic_that_we_do_not_follow_is_charged_also_within_the_rate(siege):
    siege.mallory.control(siege.node, graft=[Graft(topic=b"unknown")])
    siege.world.run(0.2)
    assert 0.9 < siege.node.offence(siege.mallory) <= 1


def test_who_offers_what_it_never_delivers_is_out_of_the_mesh(siege):
    offers = iter(range(10**6))
    for _ in range(4 * int(PROMISE_SECONDS)):
        siege.mallory.control(siege.node, ihave=[IHave(topic=TOPIC, ids=[b"%032d" % next(offers)])])
        siege.world.run(1)
    assert siege.mallory.name not in siege.node.mesh()
    assert siege.node.score(siege.mallory) < 0


def test_who_delivers_one_of_what_it_offered_is_not_charged_and_is_asked_again(siege):
    offer = IHave(topic=TOPIC, ids=[message_id(TOPIC, b"offered"), *ids(10)])
    siege.mallory.control(siege.node, ihave=[offer])
    siege.world.run(1)
    assert len(siege.wanted()) == 11
    siege.mallory.control(siege.node, ihave=[offer])
    siege.world.run(1)
    assert len(siege.wanted()) == 11
    siege.mallory.publish(siege.node, siege.mallory.message(b"offered"))
    siege.mallory.control(siege.node, ihave=[IHave(topic=TOPIC, ids=[b"more"])])
    siege.world.run(1)
    assert len(siege.wanted()) == 12
    siege.mallory.publish(siege.node, siege.mallory.message(b"other"))
    siege.world.run(8)
    assert siege.node.offence(siege.mallory) == 0


def test_what_is_asked_of_one_peer_in_a_heartbeat_does_not_grow_with_the_topics():
    siege = Siege(topics=[topic_of(shard) for shard in range(4)])
    offers = [IHave(topic=topic_of(shard), ids=ids(100)) for shard in range(4)]
    siege.world.run(1 - siege.world.now % 1)
    siege.mallory.control(siege.node, ihave=offers)
    siege.world.run(0.15)
    assert len(siege.wanted()) == ASKED_IDS


def test_a_peer_that_stalls_breaks_one_promise_whatever_the_number_of_its_topics():
    topics = [topic_of(shard) for shard in range(MAX_SHARDS)]
    siege = Siege(topics=topics)
    siege.mallory.control(siege.node, ihave=[IHave(topic=topic, ids=[topic[-32:]]) for topic in topics])
    siege.world.run(PROMISE_SECONDS + 3)
    assert len(siege.wanted()) == MAX_SHARDS
    assert 2 < siege.node.offence(siege.mallory) <= 3


def test_a_message_that_is_requested_again_and_again_is_sent_once_in_a_heartbeat(siege):
    siege.node.publish(bytes(100_000))
    siege.world.run(1)
    siege.mallory.received.clear()
    for _ in range(50):
        siege.mallory.control(siege.node, iwant=[IWant(ids=[message_id(TOPIC, bytes(100_000))])])
    siege.world.run(0.5)
    assert 1 <= len(siege.mallory.published) <= 2


def test_a_new_connection_brings_no_new_score(siege):
    siege.node.machine.scores.offended(siege.world.now, siege.mallory.name, Offence.EXCESS, 12)
    siege.world.hang_up(siege.node, siege.mallory)
    siege.world.dial(siege.mallory, siege.node)
    siege.mallory.subscribe(siege.node)
    siege.mallory.control(siege.node, graft=[Graft(topic=TOPIC)])
    siege.world.run(3)
    assert siege.mallory.name not in siege.node.mesh()


@pytest.mark.parametrize("shards", [2, MAX_SHARDS])
def test_honest_nodes_that_offer_bursts_on_many_topics_charge_each_other_with_nothing(shards, monkeypatch):
    monkeypatch.setattr(machine, "OFFERED_PEERS", 64)
    world = World()
    topics = [topic_of(shard) for shard in range(shards)]
    one, other = world.nodes_of(2, topics=topics)
    for node in (one, other):  # so that neither is in the mesh of the other
        for topic in node.machine.topics.values():
            topic.keep_out(other.name, 10**4, 0.0)
            topic.keep_out(one.name, 10**4, 0.0)
    world.dial(one, other)
    world.run(3)
    for number in range(800):
        one.publish(b"%d" % number, topics[number % shards])
        if shards > 2:
            world.run(0.02)
    world.run(10)
    assert one.mesh() == other.mesh() == set()
    assert len(other.heard) == 800
    assert one.offence(other) == other.offence(one) == 0
    assert one.left == other.left == []
