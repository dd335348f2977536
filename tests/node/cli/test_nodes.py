"""`sapo-node nodes` shows the states and the running nodes of a machine, and commands that find none point to it."""

import json
import os
from contextlib import closing

import pytest

from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.cli.main import main
from sapo_node.observability.history import History
from sapo_node.storage.database import Database
from sapo_protocol import load_manifest

PAGE = "http://127.0.0.1:8080/"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The folder of two states, of which one has had a session."""
    monkeypatch.setenv("COLUMNS", "80")
    root = tmp_path / "states"
    for swarm, peer in (("starter", "12D3KooWfirst"), ("interop", "12D3KooWother")):
        folder = state_folder(root, load_manifest(swarm), peer)
        with locked(folder), closing(Database(folder.database, SCHEMA)) as database:
            if swarm == "starter":
                History(database).describe_session({"page": PAGE, "connected": ("a", "b")})
    return root


@pytest.fixture
def running(root):
    """The same, while a process holds the state of the first."""
    with locked(state_folder(root, load_manifest("starter"), "12D3KooWfirst")):
        yield root


@pytest.fixture
def shown(run_here):
    def of(root, *options):
        code, printed = run_here(main, "nodes", "--state", root, *options)
        assert code == 0, printed.err
        return printed.out.splitlines()

    return of


def test_a_running_node_comes_first_with_its_process_peers_and_page(running, shown):
    first, second = map(json.loads, shown(running, "--json"))
    assert (first["peer_id"], first["running"], first["pid"]) == ("12D3KooWfirst", True, os.getpid())
    assert (first["swarm"], first["peers"], first["page"]) == ("starter", 2, PAGE)
    assert (second["swarm"], second["running"], second["pid"], second["page"]) == ("interop", False, None, "")


def test_the_table_fits_into_80_columns(running, shown):
    heading, first, second, end = shown(running)
    assert heading.split() == ["node", "swarm", "pid", "round", "reward", "peers", "page"]
    assert first.split() == ["…ooWfirst", "starter", str(os.getpid()), "0", "-", "2", PAGE]
    assert second.split() == ["…ooWother", "interop", "-", "0", "-", "-", "stopped"]
    assert end.startswith("2 states in ")


def test_a_stopped_node_has_no_page(root, shown):
    assert [(each["pid"], each["page"]) for each in map(json.loads, shown(root, "--json"))] == [(None, "")] * 2


def test_a_state_that_cannot_be_read_is_named_and_hides_no_other(root, shown):
    folder = state_folder(root, load_manifest("interop"), "12D3KooWother")
    folder.database.write_bytes(b"x" * 5_000)
    lines = shown(root)
    assert lines[-1].startswith(f"{folder.path}: ")
    assert sum("stopped" in line for line in lines) == 1


def test_a_machine_without_a_state_says_so(tmp_path, shown):
    [line] = shown(tmp_path / "none")
    assert line.startswith("0 states in ")


def test_a_missing_key_and_a_missing_state_point_to_the_nodes_of_the_machine(tmp_path, run_here):
    code, missing_key = run_here(main, "status", "--key", tmp_path / "node.key", "--state", tmp_path / "state")
    assert code == 1
    run_here(main, "keygen", "--key", tmp_path / "node.key")
    code, missing_state = run_here(main, "status", "--key", tmp_path / "node.key", "--state", tmp_path / "state")
    assert code == 1
    for said in (missing_key.err, missing_state.err):
        assert "`sapo-node nodes` shows the nodes of this machine" in said
