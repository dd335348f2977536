"""What `sapo-node doctor` finds: as a user runs it, and its single looks where nothing else need be looked at."""

import json
import random
import socket
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest
import trio

from processes import RunningProcess, sapo_node, write_swarm
from sapo_adversary.load.keys import identity_of
from sapo_node.app.config import Config
from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.cli.doctor import State, _learner, check_bootstrap, check_router, examine, way_in
from sapo_node.cli.main import main
from sapo_node.net.interface import Reachability
from sapo_node.net.pcp import Mapping, MappingError
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import create_key
from sapo_protocol import load_manifest


def test_a_machine_that_can_run_a_node_is_told_so(tmp_path):
    done = sapo_node("doctor", "--json", "--key", tmp_path / "node.key", "--state", tmp_path / "state")
    findings = {each["name"]: each for each in json.loads(done.stdout)}
    assert done.returncode == 0
    looked_at = {
        "swarm",
        "system",
        "key",
        "disk",
        "clock",
        "listen",
        "reachable",
        "learner",
        "model",
        "sandbox",
        "tasks",
    }
    assert looked_at <= set(findings)
    assert findings["tasks"]["state"] == "good"
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_the_model_that_start_would_take_is_looked_at(tmp_path):
    (tmp_path / "model").mkdir()
    found = finding("model", tmp_path, model=str(tmp_path / "model"))
    assert found.state is State.BAD
    assert "no usable causal language model" in found.text


def test_doctor_runs_no_module_of_the_folder_in_which_the_user_stands(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(tmp_path)
    (learner,) = _learner(Config(train=False), load_manifest("starter"))
    assert learner.state is State.GOOD


def test_the_model_of_a_node_that_does_not_train_is_not_looked_at():
    found = _learner(Config(train=False, model="/nowhere"), load_manifest("starter"))
    assert [each.name for each in found] == ["learner"]


def test_a_learner_whose_last_words_are_no_text_is_a_finding(tmp_path, monkeypatch):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nprintf '\\377 it died' >&2\n")
    dying.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(dying))
    [found] = _learner(Config(train=False), load_manifest("starter"))
    assert found.state is State.BAD
    assert "it died" in found.text


def test_a_damaged_database_is_bad_and_says_what_to_do(tmp_path):
    identity = create_key(tmp_path / "node.key", None)
    folder = state_folder(tmp_path / "state", load_manifest("starter"), identity.peer_id)
    with locked(folder):
        Database(folder.database, SCHEMA).close()
    assert finding("state", tmp_path).state is State.GOOD
    data = bytearray(folder.database.read_bytes())
    data[len(data) // 2 :] = b"\xff" * len(data[len(data) // 2 :])
    folder.database.write_bytes(data)
    found = finding("state", tmp_path)
    assert found.state is State.BAD
    assert "restore it from a backup" in found.text


def test_what_a_killed_restore_has_left_is_named(tmp_path):
    identity = create_key(tmp_path / "node.key", None)
    folder = state_folder(tmp_path / "state", load_manifest("starter"), identity.peer_id)
    (folder.path / ".sapo-restore-abcdefgh" / "checkpoints").mkdir(parents=True)
    found = finding("leftover", tmp_path)
    assert found.state is State.DOUBTFUL
    assert ".sapo-restore-abcdefgh is of a `restore` that was killed" in found.text


def test_a_state_ahead_of_the_clock_is_bad_until_it_is_repaired(tmp_path, run_here):
    manifest = load_manifest("starter")
    identity = create_key(tmp_path / "node.key", None)
    folder = state_folder(tmp_path / "state", manifest, identity.peer_id)
    tomorrow = time.time() + 86_400
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database:
        Counters(database, manifest, now=tomorrow, key_is_new=True, rng=random.Random(0)).reserve(tomorrow)
    found = finding("state", tmp_path)
    assert found.state is State.BAD
    assert "doctor --repair" in found.advice
    (tmp_path / "relay.toml").write_text("train = false\n")
    places = ("--config", tmp_path / "relay.toml", "--key", tmp_path / "node.key", "--state", tmp_path / "state")
    _, done = run_here(main, "doctor", "--repair", *places)
    assert "again; the node listens for two epochs" in done.err
    assert finding("state", tmp_path).state is State.GOOD


def test_a_swarm_that_begins_later_says_when(tmp_path):
    swarm = write_swarm(tmp_path / "later.toml", genesis=1_900_000_000)
    assert "Mar 2030" in finding("swarm", tmp_path, swarm).text


def test_a_state_where_a_file_is_in_the_way_is_bad(tmp_path):
    (tmp_path / "state").write_text("")
    assert finding("state", tmp_path).state is State.BAD


def finding(name, folder, swarm="starter", **settings):
    """The first finding of this name."""
    config = Config(swarm=str(swarm), key=str(folder / "node.key"), state=str(folder / "state"), **settings)

    async def look():
        async for each in examine(config):
            if each.name == name:
                return each
        return None

    return trio.run(look)


def test_a_key_that_others_can_read_is_bad_and_says_what_to_do(tmp_path):
    create_key(tmp_path / "node.key", None)
    (tmp_path / "node.key").chmod(0o644)
    found = finding("key", tmp_path)
    assert found.state is State.BAD
    assert "chmod" in found.text


def test_a_port_that_is_taken_is_doubtful_since_this_node_may_have_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = finding("listen", tmp_path, listen=(f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}",))
    assert found.state is State.DOUBTFUL


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A node that relays in a swarm of its own: its folder, and its address."""
    folder = tmp_path_factory.mktemp("doctor")
    swarm = write_swarm(folder / "doctored.toml")
    with RunningProcess(folder, "--no-train", "--swarm", swarm) as node:
        yield folder, node.until_event("started")["addresses"][0]


def test_a_bootstrap_that_answers_is_met_and_its_swarm_recognised(relay):
    folder, address = relay
    config = Config(listen=("/ip4/127.0.0.1/tcp/0",))
    found, way = trio.run(check_bootstrap, address, load_manifest(str(folder / "doctored.toml")), config)
    assert found.state is State.GOOD
    assert "is in this swarm" in found.text
    assert "keeps ports" in way.text


def test_a_bootstrap_of_another_swarm_is_bad_and_named_so(relay):
    _, address = relay
    [found] = trio.run(check_bootstrap, address, load_manifest("starter"), Config())
    assert found.state is State.BAD
    assert "another swarm" in found.text


def test_a_bootstrap_that_is_not_there_is_bad():
    nowhere = f"/ip4/127.0.0.1/tcp/9/p2p/{identity_of('nobody', 0).peer_id}"
    [found] = trio.run(check_bootstrap, nowhere, load_manifest("starter"), Config())
    assert found.state is State.BAD
    assert found.text == f"{nowhere}: Error connecting to ('127.0.0.1', 9): Connection refused"
    assert "check that it runs" in found.advice


def test_a_node_that_runs_is_said_to_run(relay):
    folder, _ = relay
    assert "a node is running" in finding("state", folder, folder / "doctored.toml").text


def router(host):
    """A way to ask a router whose outer address is `host`, and the seconds that it was asked for."""
    asked = []

    async def ask(port, seconds):
        asked.append(seconds)
        return Mapping(host, port, seconds, "PCP")

    return ask, asked


def test_a_router_that_forwards_ports_is_good_and_keeps_no_mapping():
    ask, asked = router("9.9.9.9")
    found = trio.run(check_router, [ask])
    assert found.state is State.GOOD
    assert "by PCP" in found.text
    assert asked[-1] == 0


def test_a_router_behind_another_router_is_doubtful():
    ask, _ = router("100.64.3.4")
    found = trio.run(check_router, [ask])
    assert found.state is State.DOUBTFUL
    assert "another router is in front of it" in found.text


def test_a_router_that_forwards_no_port_is_doubtful_and_says_what_to_do():
    async def ask(_port, _seconds):
        raise MappingError("the router does not answer by PCP or NAT-PMP")

    found = trio.run(check_router, [ask])
    assert found.state is State.DOUBTFUL
    assert "does not answer" in found.text
    assert "--announce" in found.advice


SEEN = Reachability("/ip4/9.9.9.9/tcp/4001", 4001, ("/ip4/9.9.9.9/tcp/4001",), dialled=False)


def test_a_machine_that_a_peer_dialled_can_be_dialled():
    assert (
        way_in(replace(SEEN, dialled=True)).text == "the bootstrap peer dialled this machine at /ip4/9.9.9.9/tcp/4001"
    )


def test_a_machine_whose_router_keeps_ports_can_be_connected_to_others_behind_routers():
    found = way_in(SEEN)
    assert found.state is State.GOOD
    assert "it cannot dial /ip4/9.9.9.9/tcp/4001; the router keeps ports" in found.text


def test_a_machine_whose_router_takes_other_ports_is_told_that_rollouts_still_come():
    found = way_in(replace(SEEN, local_port=4002))
    assert found.state is State.DOUBTFUL
    assert "another port than this machine (4002)" in found.text
    assert "rollouts also travel through peers" in found.advice
