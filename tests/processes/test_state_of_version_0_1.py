"""A state folder that an earlier version wrote opens: a node of version 0.1 was killed in its seventh round."""

import json
import random
import re
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from processes import RunningProcess
from sapo_node.app.state import SCHEMA
from sapo_node.cli.main import main
from sapo_node.ingest.pending import PendingQueue
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import LOCAL, trained_per_peer
from sapo_node.trust.constants import Tier
from sapo_protocol import load_manifest

PACKED = Path(__file__).with_name("state-0.1.tar.xz")
"""Key, manifest and database of the node. It had not written a checkpoint: its seven batches are still to be replayed.

The node had a friend in `trusted`, a malicious peer that it banned, groups of the friend in its pool and rollouts that
waited for verification.
"""


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(PACKED) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def where(folder):
    return "--swarm", folder / "demo.toml", "--key", folder / "node.key", "--state", folder


def test_its_rounds_are_shown(run_here, where):
    code, shown = run_here(main, "status", "--json", *where)
    state = json.loads(shown.out)
    assert code == 0
    assert [each["step"] for each in state["rounds"]] == list(range(1, 8))
    assert len(state["evaluations"]) == 1


def test_its_peers_keep_their_standing_and_offences(run_here, where):
    _, shown = run_here(main, "peers", "--json", *where)
    peers = {each["state"]: each["peer"] for each in json.loads(shown.out)}
    assert set(peers) == {"healthy", "banned"}
    _, explained = run_here(main, "peers", peers["banned"], *where)
    assert re.search(r"\d+ false claims", explained.out)


def test_what_became_of_a_group_is_explained(run_here, where, folder):
    [database] = folder.glob("demo-*/*/node.sqlite")
    [(envelope,)] = Database(database, (), read_only=True).rows(
        "SELECT envelope_id FROM journal WHERE fate = 'trained' AND peer != '' LIMIT 1"
    )
    code, shown = run_here(main, "why", envelope, *where)
    assert code == 0
    assert "trained" in shown.out


def test_its_rollouts_that_wait_are_drawn_as_those_of_strangers(folder):
    """They say neither how they came nor whose they are."""
    [file] = folder.glob("demo-*/*/node.sqlite")
    with closing(Database(file, SCHEMA)) as database:
        pending_queue = PendingQueue(database, load_manifest(str(folder / "demo.toml")), rng=random.Random(0))
        assert len(pending_queue) == 44
        drawn = [pending_queue.draw(Tier.STRANGER) for _ in range(44)]
        assert len({each.opened.envelope_id for each in drawn}) == 44
        assert len(pending_queue) == 0


@pytest.mark.slow
def test_a_node_replays_its_batches_and_goes_on(where, folder):
    with RunningProcess(folder, *where, "--external", 0, "--rounds", 1) as node:
        node.until_event("stopped")
        [event] = (event for event in node.events if event["event"] == "round")
        assert event["step"] == 8
    [database] = folder.glob("demo-*/*/node.sqlite")
    with closing(Database(database, (), read_only=True)) as after:
        assert after.rows("SELECT max(step) FROM checkpoints") == [(8,)]
        # A replayed batch counts once.
        assert sum(groups for peer, (groups, _) in trained_per_peer(after).items() if peer != LOCAL) == 8
