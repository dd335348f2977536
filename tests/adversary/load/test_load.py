"""What publishers of a load test send, and when."""

import json
import random
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from libp2p.pubsub.pb import rpc_pb2
from nacl.signing import SigningKey

from processes import ENVIRONMENT, write_swarm
from sapo_adversary.attacks.gossip.peer import running
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.load import publishers
from sapo_adversary.load.keys import identity_of
from sapo_adversary.load.messages import BAD, Messages
from sapo_adversary.load.publishers import LISTENER, Publishers
from sapo_adversary.scoring import SharedScorer
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_protocol import (
    Layer,
    RemoteError,
    decode_body,
    evidence_topic,
    load_manifest,
    open_message,
    peer_id,
    rollouts_topics,
)

MANIFEST = load_manifest("starter")
EPOCH = 10
BEGAN = MANIFEST.genesis + EPOCH * MANIFEST.epoch_seconds + 60
"""When the load tests of these tests begin."""
NOW = BEGAN + 30


def publisher(user=0):
    identity = identity_of("test", user)
    return Key(identity.public_key, identity.sign)


def messages_from(began, manifest=MANIFEST):
    return Messages(manifest, Kit(manifest, [], SharedScorer().solve, random.Random(1)), began)


@pytest.fixture
def messages():
    return messages_from(BEGAN)


def counter(messages, now, manifest=MANIFEST):
    return open_message(messages.make("valid", publisher(), now, 4_096), manifest).header.counter


def all_counters(messages, now, manifest=MANIFEST):
    """Those of a user that sends as fast as it can."""
    found = []
    with pytest.raises(ValueError, match="give more users, or a lower rate"):
        while True:
            found.append(counter(messages, now, manifest))
    return found


@pytest.mark.parametrize("size", [4_096, 32_768, 131_072])
def test_a_valid_message_has_about_the_size_that_was_asked_for(messages, size):
    data = messages.make("valid", publisher(), NOW, size)
    rollout = open_message(data, MANIFEST)
    assert 0.75 * size < len(data) < 1.1 * size
    assert all(decode_body(body, MANIFEST) for body in rollout.bodies)


def test_each_message_of_a_key_has_a_counter_of_its_own(messages):
    first, *others = [counter(messages, NOW) for _ in range(4)]
    assert others == [first + 1, first + 2, first + 3]


@pytest.mark.parametrize(("kind", "layer"), [("forged", Layer.SIGNATURE), ("garbage", Layer.FRAME)])
def test_a_bad_message_is_refused_for_what_is_wrong_with_it(messages, kind, layer):
    with pytest.raises(RemoteError) as refused:
        open_message(messages.make(kind, publisher(), NOW, 4_096), MANIFEST)
    assert refused.value.layer is layer


def test_a_stale_message_is_whole_and_of_an_epoch_long_over(messages):
    assert open_message(messages.make("stale", publisher(), NOW, 4_096), MANIFEST).header.epoch == EPOCH - 5


def test_a_second_load_test_in_an_epoch_uses_no_counter_of_the_first(messages):
    first = all_counters(messages, NOW)
    assert not {*first} & {*all_counters(messages_from(NOW), NOW + 30)}


def test_a_load_test_begins_with_the_first_counter_of_the_next_epoch(messages):
    counter(messages, NOW)
    assert all_counters(messages, BEGAN - 60 + MANIFEST.epoch_seconds) == [0]


def test_a_user_has_no_more_messages_in_an_epoch_than_a_stranger_may_have():
    few = MANIFEST.restarted(name="few", genesis=0, epoch_seconds=600, max_rounds=8)
    assert all_counters(messages_from(-1, few), 599, few) == [0, 1, 2, 3]


def test_keys_follow_from_the_words_and_the_number_alone():
    assert identity_of("a", 1).peer_id == identity_of("a", 1).peer_id
    assert len({identity_of(words, user).peer_id for words in "ab" for user in range(3)}) == 6
    assert set(BAD) == {"forged", "stale", "garbage"}


@asynccontextmanager
async def target_that_reads_nothing_from(user):
    """A target that passes on to the listener what all other users send; its address."""

    async def hear(sender, rpc):
        if sender == identity_of("test", user).peer_id:
            await trio.sleep_forever()
        for message in rpc.publish:
            await target.links[identity_of("test", LISTENER).peer_id].publish(message)

    async with running(bytes(32), ("127.0.0.1", 0), hear) as target:
        yield target.address


async def delay_beside_a_blocked_user(target, swarm, said):
    """Seconds that the load tells of a message of user 1 that was due two seconds ago. A megabyte of user 0 is before
    it.
    """
    lines, told = trio.testing.memory_stream_one_way_pair()

    async def tell(line):
        await lines.send_all(json.dumps(line).encode() + b"\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Publishers(target, swarm, "test").run, told)
        for user in (0, 1):
            await tell({"join": user})
        for _ in ("ready", "joined", "joined"):
            await said.receive()
        await trio.sleep(0.5)  # until both have a counter for each message
        common = {"publish": 0, "kind": "valid", "bytes": 131_072, "due": time.monotonic() - 2}
        for ref in range(8):
            await tell({**common, "ref": ref})
        await tell({**common, "publish": 1, "bytes": 4_096, "ref": 8})
        with trio.fail_after(10):
            event = await said.receive()
        nursery.cancel_scope.cancel()
    assert event["ref"] == 8
    return event["seconds"]


def test_a_link_that_is_not_read_holds_up_no_other_user_and_the_delay_counts_from_when_a_message_was_due(
    tmp_path, monkeypatch
):
    swarm = write_swarm(tmp_path / "blocked.toml", max_rounds=100_000)
    say, said = trio.open_memory_channel(100)
    monkeypatch.setattr(publishers, "say", say.send_nowait)

    async def run():
        async with target_that_reads_nothing_from(0) as target:
            return await delay_beside_a_blocked_user(target, str(swarm), said)

    assert 2 < trio.run(run) < 10


def test_a_target_that_leaves_ends_the_publishers_with_one_line_and_its_messages_are_told(monkeypatch):
    say, said = trio.open_memory_channel(100)
    monkeypatch.setattr(publishers, "say", say.send_nowait)

    async def take(_sender, rpc):
        if rpc.publish:
            taken.set()

    async def run():
        lines, told = trio.testing.memory_stream_one_way_pair()
        async with trio.open_nursery() as nursery, running(bytes(32), ("127.0.0.1", 0), take) as target:
            nursery.start_soon(Publishers(target.address, "interop", "test").run, told)
            await lines.send_all(b'{"join": 0}\n')
            for _ in ("ready", "joined"):
                await said.receive()
            await trio.sleep(1)  # until there is a counter for the message
            message = {"publish": 0, "kind": "valid", "bytes": 4_096, "ref": 7, "due": time.monotonic()}
            await lines.send_all(json.dumps(message).encode() + b"\n")
            await taken.wait()

    taken = trio.Event()
    with pytest.RaisesGroup(pytest.RaisesExc(SystemExit, match="the target closed the connection")):
        trio.run(run)
    event = said.receive_nowait()
    assert event.pop("ref") == 7
    assert list(event.values()) == ["the target left"]


async def accept(_sender, _data):
    return Verdict.ACCEPT


def node_of(manifest):
    """The network of a node that accepts every message."""
    seed = bytes([7]) * 32
    settings = NetworkSettings(seed, manifest.network_id.hex(), ("/ip4/127.0.0.1/tcp/0",), discover=False)
    channels = dict.fromkeys((*rollouts_topics(manifest), evidence_topic(manifest)), Channel(accept, 1_000_000))
    identity = peer_id(bytes(SigningKey(seed).verify_key))
    return Libp2pNetwork(settings, identity, channels, admit=lambda _: True, notify=lambda _: None)


def test_a_user_that_sends_seldom_is_not_cut_off_as_an_idle_peer(tmp_path, monkeypatch):
    swarm = str(write_swarm(tmp_path / "seldom.toml", max_rounds=100_000))
    node = node_of(load_manifest(swarm))
    say, said = trio.open_memory_channel(100)
    monkeypatch.setattr(publishers, "say", say.send_nowait)
    monkeypatch.setattr("sapo_node.net.inbound.IDLE_SECONDS", 1.0)

    async def run():
        lines, told = trio.testing.memory_stream_one_way_pair()
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            nursery.start_soon(Publishers(node.addresses[0], swarm, "test").run, told)
            await lines.send_all(b'{"join": 0}\n')
            for _ in ("ready", "joined"):
                await said.receive()
            await trio.sleep(2)
            message = {"publish": 0, "kind": "valid", "bytes": 4_096, "ref": 7, "due": time.monotonic()}
            await lines.send_all(json.dumps(message).encode() + b"\n")
            with trio.fail_after(20):
                event = await said.receive()
            nursery.cancel_scope.cancel()
        return event

    assert trio.run(run).keys() == {"ref", "seconds"}


def test_a_listener_out_of_the_targets_mesh_waits_for_the_end_of_its_back_off(monkeypatch):
    say, said = trio.open_memory_channel(100)
    monkeypatch.setattr(publishers, "say", say.send_nowait)
    monkeypatch.setattr(publishers, "_BEAT_SECONDS", 0.05)
    grafts = []

    async def prune(sender, rpc):
        for graft in rpc.control.graft:
            grafts.append(graft.topicID)
            refusal = rpc_pb2.ControlPrune(topicID=graft.topicID, backoff=60)
            await target.links[sender].control(prune=[refusal])

    async def run():
        nonlocal target
        _, told = trio.testing.memory_stream_one_way_pair()
        async with trio.open_nursery() as nursery, running(bytes(32), ("127.0.0.1", 0), prune) as target:
            nursery.start_soon(Publishers(target.address, "interop", "test").run, told)
            await said.receive()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    target = None
    trio.run(run)
    assert grafts == list(rollouts_topics(load_manifest("interop")))


def test_publishers_have_loaded_the_tasks_before_the_first_message_is_due():
    says = "import sys; from sapo_adversary.load.publishers import Publishers"
    says += "; from sapo_node.tasks.build import _dataset; Publishers('nowhere', 'starter', 'test')"
    says += "; sys.exit(_dataset.cache_info().currsize == 0)"
    assert subprocess.run([sys.executable, "-c", says], env=ENVIRONMENT, check=False).returncode == 0
