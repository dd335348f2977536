"""What `sapo-node doctor` finds, as a user runs it."""

import json
import socket

import pytest

from processes import RunningProcess, sapo_node, write_swarm
from sapo_adversary.load.keys import identity_of


def found(folder, *arguments):
    """Findings by name, and the exit code."""
    done = sapo_node("doctor", "--json", "--key", folder / "node.key", "--state", folder / "state", *arguments)
    assert done.stdout, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}, done.returncode


def test_a_machine_that_can_run_a_node_is_told_so(tmp_path):
    findings, code = found(tmp_path)
    assert code == 0
    assert {"swarm", "system", "key", "disk", "clock", "listen", "reachable", "learner", "jail", "tasks"} <= set(
        findings
    )
    assert findings["tasks"]["state"] == "good"
    assert not (tmp_path / "state").exists()


def test_a_key_that_others_can_read_is_bad_and_says_what_to_do(tmp_path):
    sapo_node("keygen", "--key", tmp_path / "node.key")
    (tmp_path / "node.key").chmod(0o644)
    findings, code = found(tmp_path)
    assert code == 1
    assert findings["key"]["state"] == "bad"
    assert "chmod" in findings["key"]["text"]


def test_a_port_that_is_taken_is_doubtful_since_this_node_may_have_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        findings, _ = found(tmp_path, "--listen", f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}")
    assert findings["listen"]["state"] == "doubtful"


def test_a_malformed_address_is_bad(tmp_path):
    findings, code = found(tmp_path, "--listen", "127.0.0.1:4001")
    assert (code, findings["listen"]["state"]) == (1, "bad")


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A node that relays in a swarm of its own: its folder, and its address."""
    folder = tmp_path_factory.mktemp("doctor")
    swarm = write_swarm(folder / "doctored.toml")
    with RunningProcess(folder / "relay", "--no-train", "--swarm", swarm) as node:
        yield folder, node.until_event("started")["addresses"][0]


def test_a_bootstrap_that_answers_is_met_and_its_swarm_recognised(relay):
    folder, address = relay
    findings, code = found(folder, "--swarm", folder / "doctored.toml", "--bootstrap", address)
    assert (code, findings["bootstrap"]["state"]) == (0, "good")
    assert "is in this swarm" in findings["bootstrap"]["text"]


def test_a_bootstrap_of_another_swarm_is_bad_and_named_so(relay):
    folder, address = relay
    findings, code = found(folder, "--bootstrap", address)
    assert (code, findings["bootstrap"]["state"]) == (1, "bad")
    assert "another swarm" in findings["bootstrap"]["text"]


def test_a_bootstrap_that_is_not_there_is_bad(tmp_path):
    nowhere = f"/ip4/127.0.0.1/tcp/9/p2p/{identity_of('nobody', 0).peer_id}"
    findings, code = found(tmp_path, "--bootstrap", nowhere)
    assert (code, findings["bootstrap"]["state"]) == (1, "bad")
    assert "is it running" in findings["bootstrap"]["advice"]


def test_a_node_that_runs_is_said_to_run(relay):
    folder, _ = relay
    findings, _ = found(folder / "relay", "--swarm", folder / "doctored.toml")
    assert "a node is running" in findings["state"]["text"]
