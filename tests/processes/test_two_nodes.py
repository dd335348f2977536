"""Nodes in processes of their own, over real libp2p on loopback."""

import os
import signal
import sys
import time

import pytest

from processes import PATIENCE, RunningProcess, write_swarm
from sapo_node.storage.keys import create_key
from sapo_node.trust.constants import STRANGERS_SHARE

GUESSING = """
import sys
for line in sys.stdin:
    print('["<answer>1</answer>"]', flush=True)
"""


@pytest.fixture
def swarm(tmp_path):
    return write_swarm(tmp_path / "pair.toml")


@pytest.mark.slow
def test_two_nodes_train_on_each_others_groups_over_several_shards(tmp_path):
    """`test_crashes.py` has two nodes in a swarm of one shard."""
    swarm, config = write_swarm(tmp_path / "pair.toml", shards=4), tmp_path / "node.toml"
    config.write_text("external = 4\nfilters = []\neval_every = 0\n")  # what passes filters hangs on the keys
    arguments = ("--swarm", swarm, "--config", config)
    with RunningProcess(tmp_path / "a", *arguments) as first:
        address = first.until_event("started")["addresses"][0]
        with RunningProcess(tmp_path / "b", *arguments, "--bootstrap", address) as second:
            for node in (first, second):
                node.until(lambda event: event["event"] == "round" and event["external"] > 0)


def test_a_stranger_is_learnt_from_within_a_few_rounds_of_contact(tmp_path):
    swarm, config = write_swarm(tmp_path / "pair.toml"), tmp_path / "node.toml"
    config.write_text("eval_every = 0\n")
    arguments = ("--swarm", swarm, "--config", config)
    with RunningProcess(tmp_path / "a", *arguments) as first:
        address = first.until_event("started")["addresses"][0]
        first.until_round(8)
        with RunningProcess(tmp_path / "b", *arguments, "--bootstrap", address) as second:
            rounds = [second.until_round(1) for _ in range(6)]
    assert any(each["external"] > 0 for each in rounds)
    assert rounds[-1]["strangers_share"] > STRANGERS_SHARE
    assert [peer["tier"] for peer in rounds[-1]["peers"]] == ["stranger"]


def test_a_node_that_does_not_train_relays_between_two_that_do_not_know_each_other(tmp_path):
    swarm = write_swarm(tmp_path / "pair.toml", epoch_seconds=120)  # a round is shared every two seconds
    (tmp_path / "guess.py").write_text(GUESSING)
    with RunningProcess(tmp_path / "r", "--swarm", swarm, "--no-train") as relay:
        way_in = ("--bootstrap", relay.until_event("started")["addresses"][0])
        answers = ("--program", f"{sys.executable} {tmp_path / 'guess.py'}")
        with (
            RunningProcess(tmp_path / "a", "--swarm", swarm, *way_in, *answers, command="contribute") as first,
            RunningProcess(tmp_path / "b", "--swarm", swarm, *way_in, *answers, command="contribute") as second,
        ):
            names = [node.until_event("started")["peer_id"] for node in (first, second)]
            for node, other in zip((first, second), reversed(names), strict=True):
                node.until(lambda event: event["event"] == "shared" and event["counts"].get("accepted", 0) > 0)
                assert {peer["peer"] for peer in node.events[-1]["peers"]} & {*names} <= {other}


def test_two_swarms_on_one_wire_notice_and_do_not_mix(tmp_path, swarm):
    other = write_swarm(tmp_path / "other.toml", epoch_seconds=601)
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--no-train") as first:
        address = first.until_event("started")["addresses"][0]
        with RunningProcess(tmp_path / "b", "--swarm", other, "--no-train", "--bootstrap", address) as second:
            second.until(lambda event: event["event"] == "notice" and "another swarm" in event["text"])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A node that learns and cannot reach its bootstrap: its folder, its swarm, and the process."""
    folder = tmp_path_factory.mktemp("alone")
    swarm = write_swarm(folder / "alone.toml")
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    with RunningProcess(folder / "a", "--swarm", swarm, "--bootstrap", nowhere) as node:
        node.until_event("page")  # the key is made and the state is locked
        yield folder, swarm, node


@pytest.mark.slow
def test_an_unreachable_bootstrap_is_noticed_and_the_node_learns_alone(alone):
    _, _, node = alone
    node.until(lambda event: event["event"] == "notice" and "cannot reach" in event["text"])
    node.until_round(2)


def test_a_second_node_on_the_same_state_is_refused_and_the_first_goes_on(alone):
    folder, swarm, node = alone
    with RunningProcess(folder / "a", "--swarm", swarm) as twin:
        assert twin.process.wait(PATIENCE) == 1
        assert "another node is running" in twin.errors()
    refused = time.time()
    node.until(lambda event: event["event"] == "round" and event["at"] > refused)


def test_either_signal_ends_a_node_in_order_after_its_round(alone):
    folder, swarm, first = alone
    assert ends_in_order(first, signal.SIGINT)
    rounds = [event["step"] for event in first.events if event["event"] == "round"]
    with RunningProcess(folder / "a", "--swarm", swarm) as second:
        assert second.until_event("round")["step"] == rounds[-1] + 1
        assert ends_in_order(second, signal.SIGTERM)


def ends_in_order(node, number):
    """Whether a node that gets the signal stops, says so, and exits with 0."""
    node.process.send_signal(number)
    node.until_event("stopped")
    return node.process.wait(PATIENCE) == 0


@pytest.fixture(scope="module")
def reused(tmp_path_factory):
    """A node whose key is older than its state."""
    folder = tmp_path_factory.mktemp("reused")
    create_key(folder / "a" / "node.key")
    swarm = write_swarm(folder / "reused.toml")
    with RunningProcess(folder / "a", "--swarm", swarm, "--dashboard", "off") as node:
        yield node


def test_a_node_with_an_older_key_trains_but_does_not_publish(reused):
    reused.until(lambda event: event["event"] == "notice" and "listens" in event["text"])
    assert reused.until_round(1)["published"] is False


def test_a_signal_to_all_processes_of_a_node_ends_it_in_order_after_its_round(reused):
    reused.until_round(1)
    for child in reused.children().values():
        os.kill(child, signal.SIGINT)
    assert ends_in_order(reused, signal.SIGINT)
    assert "Traceback" not in str(reused.events) + reused.errors()
    assert reused.events[-2]["event"] == "round"
