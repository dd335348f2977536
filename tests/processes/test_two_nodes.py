"""Nodes in processes of their own, over real libp2p on loopback."""

import signal

import pytest

from processes import RunningProcess, write_swarm


@pytest.fixture
def swarm(tmp_path):
    return write_swarm(tmp_path / "pair.toml")


@pytest.mark.parametrize("shards", [1, 4])
def test_two_nodes_train_on_each_others_groups(tmp_path, shards):
    swarm = write_swarm(tmp_path / "pair.toml", shards=shards)
    with RunningProcess(tmp_path / "a", "--swarm", swarm) as first:
        address = first.until_event("started")["addresses"][0]
        with RunningProcess(tmp_path / "b", "--swarm", swarm, "--bootstrap", address) as second:
            for node in (first, second):
                node.until(lambda event: event["event"] == "round" and event["external"] > 0)


def test_a_node_that_does_not_train_relays_between_two_that_do_not_know_each_other(tmp_path, swarm):
    with RunningProcess(tmp_path / "r", "--swarm", swarm, "--no-train") as relay:
        way_in = ("--bootstrap", relay.until_event("started")["addresses"][0])
        with (
            RunningProcess(tmp_path / "a", "--swarm", swarm, *way_in) as first,
            RunningProcess(tmp_path / "b", "--swarm", swarm, *way_in) as second,
        ):
            peers = {node.until_event("started")["peer_id"] for node in (first, second)}
            for node in (first, second):
                node.until(lambda event: event["event"] == "round" and event["counts"].get("accepted", 0) > 0)
                assert {peer["peer"] for peer in node.events[-1]["peers"]} < peers


def test_two_swarms_on_one_wire_notice_and_do_not_mix(tmp_path, swarm):
    other = write_swarm(tmp_path / "other.toml", epoch_seconds=601)
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--no-train") as first:
        address = first.until_event("started")["addresses"][0]
        with RunningProcess(tmp_path / "b", "--swarm", other, "--no-train", "--bootstrap", address) as second:
            second.until(lambda event: event["event"] == "notice" and "another swarm" in event["text"])


def test_an_unreachable_bootstrap_is_noticed_and_the_node_learns_alone(tmp_path, swarm):
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--bootstrap", nowhere) as node:
        node.until(lambda event: event["event"] == "notice" and "cannot reach" in event["text"])
        node.until_round(2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_node_in_order_after_its_round(tmp_path, swarm, number):
    with RunningProcess(tmp_path / "a", "--swarm", swarm) as node:
        node.until_round(2)
        node.process.send_signal(number)
        node.until_event("stopped")
        assert node.process.wait(30) == 0
        rounds = [event["step"] for event in node.events if event["event"] == "round"]
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--rounds", 1) as node:
        assert node.until_event("round")["step"] == rounds[-1] + 1


def test_a_second_node_on_the_same_state_is_refused_and_the_first_goes_on(tmp_path, swarm):
    with RunningProcess(tmp_path / "a", "--swarm", swarm) as node:
        node.until_event("started")
        with RunningProcess(tmp_path / "a", "--swarm", swarm) as twin:
            assert twin.process.wait(60) == 1
            assert "another node is running" in twin.errors()
        node.until_round(1)


def test_a_node_with_an_older_key_trains_but_does_not_publish(tmp_path, swarm):
    from sapo_node.storage.keys import create_key

    create_key(tmp_path / "a" / "node.key")
    with RunningProcess(tmp_path / "a", "--swarm", swarm) as node:
        node.until(lambda event: event["event"] == "notice" and "listens" in event["text"])
        assert node.until_round(1)["published"] is False
