"""Kill -9 at random points: nothing acknowledged is lost, no counter is used twice, nothing is trained on twice."""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing

import pytest

from chat_server import SOLVER
from processes import PATIENCE, RunningProcess, write_swarm
from sapo_node.app.state import SCHEMA
from sapo_node.groups.record import LOCAL
from sapo_node.observability.overview import overview
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import BatchLog, trained_per_peer
from sapo_node.training.take_back import TakeBacks
from sapo_protocol import decode_header, decode_message, load_manifest, open_envelope, parse_envelope

KILLS = [2, pytest.param(40, marks=pytest.mark.slow)]


@pytest.fixture
def swarm(tmp_path):
    return write_swarm(tmp_path / "crash.toml", epoch_seconds=86_400, max_rounds=100_000)


def without_checkpoints(folder, *trusted):
    """A configuration under which every batch stays on record, so that the whole story can be read afterwards.

    With one own group a round, for the whole story is replayed after each kill, and without filters, which may reject
    all that the peer has for some keys.
    """
    folder.mkdir(exist_ok=True)
    file = folder / "node.toml"
    settings = "local = 1\nexternal = 4\nfilters = []\ncheckpoint_every = 100000\neval_every = 0\n"
    file.write_text(f"{settings}trusted = {json.dumps(trusted)}\n")
    return file


def database_of(folder):
    (path,) = (folder / "state").rglob("node.sqlite")
    return sqlite3.connect(path)


def assert_nothing_trained_twice(database):
    """Steps follow each other without a gap, and no group of a peer stands in two of them."""
    steps, groups = [], []
    for step, batch in database.execute("SELECT step, batch FROM batches ORDER BY step"):
        steps.append(step)
        groups += [group["id"] for group in json.loads(batch)["groups"] if group["source"] == "external"]
    assert steps == list(range(1, len(steps) + 1))
    assert len(groups) == len(set(groups))
    return len(groups)


def assert_each_counter_signed_once(database, swarm):
    manifest = load_manifest(str(swarm))
    signed = {}
    for (message,) in database.execute("SELECT message FROM published"):
        envelope, _ = decode_message(message, manifest)
        opened = open_envelope(parse_envelope(envelope, network_id=manifest.network_id))
        header = decode_header(opened.payload, manifest)
        assert signed.setdefault((header.epoch, header.counter), opened.envelope_id) == opened.envelope_id
    (following,) = database.execute("SELECT max(next) FROM counters").fetchone()
    assert max(counter for _, counter in signed) < following
    return signed


def accepted_of(database):
    return set(database.execute("SELECT issuer, epoch, counter, envelope_id FROM seen"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", KILLS)
def test_a_node_killed_at_random_points_loses_nothing_and_repeats_nothing(tmp_path, swarm, kills):
    rng = random.Random(1)
    (tmp_path / "solver.py").write_text(SOLVER)
    solver = ("--program", f"{sys.executable} {tmp_path / 'solver.py'}", "--local", 1)
    with RunningProcess(tmp_path / "peer", "--swarm", swarm, *solver, command="contribute") as peer:
        started = peer.until_event("started")
        config = without_checkpoints(tmp_path / "victim", started["peer_id"])
        arguments = ("--swarm", swarm, "--config", config, "--bootstrap", started["addresses"][0])
        published, accepted = {}, set()
        for kill in range(kills):
            with RunningProcess(tmp_path / "victim", *arguments) as victim:
                # Half of the kills fall into a life that plays, the others wherever its start has come to. The first
                # has trained on the peer, or nothing could be repeated.
                if kill == 0:
                    victim.until(lambda event: event["event"] == "round" and event["external"])
                elif kill % 2 == 0:
                    victim.until_round(1)
                time.sleep(rng.uniform(0.5, 1.5) if kill % 2 == 0 else rng.uniform(0.5, 5))
                victim.process.send_signal(signal.SIGKILL)
                victim.process.wait()
            with database_of(tmp_path / "victim") as database:
                now = assert_each_counter_signed_once(database, swarm)
                assert published.items() <= now.items()
                published = now
                assert accepted <= accepted_of(database)
                accepted = accepted_of(database)
                external = assert_nothing_trained_twice(database)
        assert external > 0
        peer.until_event("shared")
        views = {each["peer"]: each["state"] for each in peer.events[-1]["peers"]}
    assert "banned" not in views.values()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", KILLS)
def test_a_node_whose_workers_are_killed_at_random_points_goes_on(tmp_path, swarm, kills):
    rng = random.Random(2)
    config = without_checkpoints(tmp_path / "a")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--config", config) as node:
        node.until_round(1)
        killed = set()
        deadline = time.monotonic() + 6 * PATIENCE
        while len(killed) < kills and time.monotonic() < deadline:
            time.sleep(rng.uniform(0, 0.5))
            worker = node.children().get(("learner", "sandbox")[len(killed) % 2])
            if worker is None or worker in killed:
                node.until_round(1)
                continue
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
        assert len(killed) == kills
        last = node.until_round(2)
        node.process.send_signal(signal.SIGTERM)
        node.until_event("stopped")
    with database_of(tmp_path / "a") as database:
        assert_each_counter_signed_once(database, swarm)
        assert_nothing_trained_twice(database)
        (steps,) = database.execute("SELECT max(step) FROM rounds").fetchone()
    assert steps >= last["step"]


@pytest.mark.slow
def test_a_corrupt_newest_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, swarm):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "node.toml").write_text("checkpoint_every = 1\neval_every = 0\n")
    arguments = ("--swarm", swarm, "--config", tmp_path / "a" / "node.toml", "--rounds")
    with RunningProcess(tmp_path / "a", *arguments, 2) as node:
        node.until_event("stopped")
    newest = max((tmp_path / "a" / "state").rglob("checkpoints/step-*"))
    weights = max(newest.glob("*.safetensors"), key=lambda file: file.stat().st_size)
    weights.write_bytes(weights.read_bytes()[:-100])
    with RunningProcess(tmp_path / "a", *arguments, 1) as node:
        notice = node.until(lambda event: event["event"] == "notice" and "fell back" in event["text"])
        assert newest.name in notice["text"]
        assert node.until_event("round")["step"] == 3


@pytest.mark.slow
def test_a_node_that_was_killed_when_it_had_decided_to_take_steps_back_does_so_at_its_next_start(tmp_path, swarm):
    (tmp_path / "solver.py").write_text(SOLVER)
    solver = ("--program", f"{sys.executable} {tmp_path / 'solver.py'}", "--local", 1)
    with RunningProcess(tmp_path / "peer", "--swarm", swarm, *solver, command="contribute") as peer:
        started = peer.until_event("started")
        config = without_checkpoints(tmp_path / "victim", started["peer_id"])
        arguments = ("--swarm", swarm, "--config", config)
        with RunningProcess(tmp_path / "victim", *arguments, "--bootstrap", started["addresses"][0]) as victim:
            victim.until(lambda event: event["event"] == "round" and event["external"])
            victim.process.send_signal(signal.SIGKILL)
            victim.process.wait()
    [path] = (tmp_path / "victim" / "state").rglob("node.sqlite")
    with closing(Database(path, SCHEMA)) as database:
        batches = list(BatchLog(database).batches())
        accused = {
            (batch.request.step, group): member.peer
            for batch in batches
            for group, member in batch.members.items()
            if member.peer
        }
        decided = {"restored": 0, "replayed": len(batches), "reason": "completions said", "phrase": "so", "at": 0.0}
        TakeBacks(database).begin(accused, **decided)
    with RunningProcess(tmp_path / "victim", *arguments, "--external", 0, "--rounds", 1) as victim:
        told = victim.until(lambda event: event["event"] == "notice" and "took back" in event["text"])
        assert f"took back {len(accused)} group" in told["text"]
        assert victim.until_event("round")["step"] == len(batches) + 1
        victim.until_event("stopped")
    with closing(Database(path, (), read_only=True)) as database:
        assert database.rows("SELECT DISTINCT why FROM groups WHERE peer != '' AND why LIKE 'taken back%'") == [
            ("taken back: completions said 'so'",)
        ]
        assert {peer for peer, counts in trained_per_peer(database).items() if any(counts)} <= {LOCAL}
        [taken] = overview(database).taken_back
        assert (taken.groups, taken.failure) == (len(accused), "")
