"""Nodes in processes of their own, over real libp2p on loopback."""

import os
import signal
import sys
import time
from functools import partial

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
            taught = second.until(
                lambda event: event["event"] == "round" and event["strangers_share"] > STRANGERS_SHARE
            )
    assert taught["step"] <= 6
    assert taught["external"] > 0
    assert [peer["tier"] for peer in taught["peers"]] == ["stranger"]


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
    """A node that learns, whose key is older than its state, and that cannot reach its bootstrap: the process, and
    what starts it again.
    """
    folder = tmp_path_factory.mktemp("alone")
    (folder / "a").mkdir()
    create_key(folder / "a" / "node.key")
    swarm, config = write_swarm(folder / "alone.toml"), folder / "node.toml"
    config.write_text("local = 1\neval_every = 0\n")
    start = partial(RunningProcess, folder / "a", "--swarm", swarm, "--config", config)
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    with start("--bootstrap", nowhere) as node:
        node.until_event("page")  # the state is locked
        yield node, start


@pytest.mark.slow
def test_an_unreachable_bootstrap_is_noticed_and_the_node_learns_alone(alone):
    node, _ = alone
    node.until(lambda event: event["event"] == "notice" and "cannot reach" in event["text"])
    node.until_round(2)


def test_a_second_node_on_the_same_state_is_refused_and_the_first_goes_on(alone):
    node, start = alone
    with start() as twin:
        assert twin.process.wait(PATIENCE) == 1
        assert "another node is running" in twin.errors()
    refused = time.time()
    node.until(lambda event: event["event"] == "round" and event["at"] > refused)


def test_a_node_with_an_older_key_trains_but_does_not_publish(alone):
    node, _ = alone
    assert node.until_round(1)["published"] is False
    assert [event for event in node.events if event["event"] == "notice" and "listens" in event["text"]]


def test_either_signal_ends_a_node_in_order_after_its_round_also_where_all_its_processes_get_it(alone):
    first, start = alone
    first.until_round(1)
    for child in first.children().values():
        os.kill(child, signal.SIGINT)
    assert ends_in_order(first, signal.SIGINT)
    assert "Traceback" not in str(first.events) + first.errors()
    *_, last, _ = (event for event in first.events if event["event"] != "notice")
    assert last["event"] == "round"
    with start() as second:
        assert second.until_event("round")["step"] == last["step"] + 1
        assert ends_in_order(second, signal.SIGTERM)


def ends_in_order(node, number):
    """Whether a node that gets the signal stops, says so, and exits with 0."""
    node.process.send_signal(number)
    node.until_event("stopped")
    return node.process.wait(PATIENCE) == 0
