"""The commands as a user meets them: what they print, what they refuse, and how they say so."""

import json
import socket
import sqlite3

import pytest

from processes import RunningProcess, sapo_node, write_swarm
from sapo_node.metrics import METRICS

COMMANDS = [
    "start",
    "contribute",
    "demo",
    "keygen",
    "status",
    "peers",
    "eval",
    "config",
    "verify",
    "conformance",
    "why",
    "doctor",
    "export",
    "manifest",
    "evidence",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    done = sapo_node(command, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout
    assert len(done.stdout.splitlines()) > 6


def test_keygen_prints_the_peer_id_and_never_overwrites(tmp_path):
    key = tmp_path / "node.key"
    made = json.loads(sapo_node("keygen", "--key", key, "--json").stdout)
    assert made["peer_id"].startswith("12D3KooW")
    again = sapo_node("keygen", "--key", key)
    assert again.returncode == 1
    assert "never overwritten" in again.stderr


def test_config_prints_a_file_that_start_and_config_accept(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(sapo_node("config").stdout)
    assert sapo_node("config", file).stdout == file.read_text()


def one_line_error(done):
    assert done.returncode == 1, done
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("error:"), done.stderr
    assert "Traceback" not in done.stderr
    return lines[-1]


def test_status_of_a_key_that_never_ran_says_what_to_do(tmp_path):
    sapo_node("keygen", "--key", tmp_path / "k")
    assert "sapo-node start" in one_line_error(sapo_node("status", "--key", tmp_path / "k", "--state", tmp_path))


def test_an_unknown_swarm_names_those_there_are_and_no_key_is_made_for_it(tmp_path):
    assert "starter" in one_line_error(sapo_node("start", "--swarm", "nowhere", "--key", tmp_path / "k"))
    assert not (tmp_path / "k").exists()


def test_a_file_that_is_no_key_is_refused(tmp_path):
    (tmp_path / "k").write_text("not a key")
    (tmp_path / "k").chmod(0o600)
    assert "not a PKCS#8" in one_line_error(sapo_node("start", "--key", tmp_path / "k", "--state", tmp_path))


def test_an_unknown_configuration_key_is_refused_with_the_right_one(tmp_path):
    (tmp_path / "c.toml").write_text("extrenal = 4")
    assert "did you mean 'external'" in one_line_error(sapo_node("start", "--config", tmp_path / "c.toml"))


def test_a_busy_port_is_named_with_the_option_that_changes_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = sapo_node(
            *("start", "--no-train", "--no-mdns", "--key", tmp_path / "k", "--state", tmp_path),
            *("--listen", f"/ip4/127.0.0.1/tcp/{port}"),
        )
    assert "--listen" in one_line_error(done)


def test_a_bootstrap_address_without_a_peer_id_is_refused(tmp_path):
    done = sapo_node(
        *("start", "--no-train", "--no-mdns", "--key", tmp_path / "k", "--state", tmp_path),
        *("--bootstrap", "/ip4/127.0.0.1/tcp/1"),
    )
    assert "/p2p/" in one_line_error(done)


def test_a_model_folder_without_a_tokenizer_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    done = sapo_node(
        *("start", "--no-mdns", "--key", tmp_path / "k", "--state", tmp_path, "--model", tmp_path / "model"),
        *("--listen", "/ip4/127.0.0.1/tcp/0"),
    )
    assert "model" in one_line_error(done)


def test_a_key_made_by_a_start_that_failed_shares_with_the_next(tmp_path):
    swarm, folder = write_swarm(tmp_path / "here.toml"), tmp_path / "a"
    (tmp_path / "model").mkdir()
    done = sapo_node(
        *("start", "--no-mdns", "--swarm", swarm, "--model", tmp_path / "model"),
        *("--key", folder / "node.key", "--state", folder / "state", "--listen", "/ip4/127.0.0.1/tcp/0"),
    )
    assert "model" in one_line_error(done)
    assert (folder / "node.key").exists()
    with RunningProcess(folder, "--swarm", swarm, "--rounds", 1) as node:
        assert node.until_event("round")["published"] is True


def test_eval_asks_the_hub_for_a_model_it_names(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert "cannot be downloaded" in one_line_error(sapo_node("eval", "--model", "somebody/tiny"))


def test_eval_without_a_state_measures_the_policy_in_the_package():
    done = sapo_node("eval", "--questions", 4, "--json")
    result = json.loads(done.stdout)
    assert result["step"] == 0
    assert len(result["per_task"]) == 6
    for measured in (result, *result["per_task"].values()):
        assert 0 <= measured["low"] <= measured["pass_at_1"] <= measured["high"] <= 1
    assert result["high"] - result["low"] < min(each["high"] - each["low"] for each in result["per_task"].values())


def test_metrics_names_every_figure_in_its_help():
    shown = sapo_node("metrics", "--help").stdout
    assert all(f"  {name}" in shown for name in METRICS)


def test_a_damaged_database_is_named_and_left_as_it_is(tmp_path):
    swarm = write_swarm(tmp_path / "here.toml")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--no-train") as node:
        node.until_event("started")
    (database,) = (tmp_path / "a" / "state").rglob("node.sqlite")
    for extra in database.parent.glob("node.sqlite-*"):
        extra.unlink()
    database.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    done = sapo_node(
        *("start", "--no-train", "--no-mdns", "--swarm", swarm, "--listen", "/ip4/127.0.0.1/tcp/0"),
        *("--key", tmp_path / "a" / "node.key", "--state", tmp_path / "a" / "state"),
    )
    assert "damaged" in one_line_error(done)
    assert database.stat().st_size == 5_016


def test_start_plays_the_rounds_asked_for_and_tells_of_them(tmp_path):
    swarm = write_swarm(tmp_path / "here.toml")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--rounds", 3) as node:
        started = node.until_event("started")
        node.until_event("stopped")
        assert node.process.wait(30) == 0
    rounds = [event for event in node.events if event["event"] == "round"]
    assert [each["step"] for each in rounds] == [1, 2, 3]
    where = ("--swarm", swarm, "--key", tmp_path / "a" / "node.key", "--state", tmp_path / "a" / "state")
    status = json.loads(sapo_node("status", *where, "--json").stdout)
    assert status["session"]["peer_id"] == started["peer_id"]
    assert [each["step"] for each in status["rounds"]] == [1, 2, 3]
    assert status["running"] is False
    assert status["session"]["stopped"] >= status["session"]["started"]
    shown = sapo_node("status", *where).stdout
    assert "reward" in shown
    assert "stopped " in shown
    assert started["addresses"][0] not in shown
    assert json.loads(sapo_node("peers", *where, "--json").stdout) == []
    lines = [json.loads(line) for line in sapo_node("metrics", *where).stdout.splitlines()]
    assert lines == [{name: each[name] for name in METRICS} for each in rounds]
    assert all(line["learning_rate"] > 0 for line in lines)
    trained = json.loads(sapo_node("eval", *where, "--questions", 2, "--samples", 3, "--json").stdout)
    assert (trained["step"], trained["samples"]) == (3, 3)


def test_status_says_whether_the_node_runs(tmp_path):
    swarm = write_swarm(tmp_path / "here.toml")
    where = ("--swarm", swarm, "--key", tmp_path / "a" / "node.key", "--state", tmp_path / "a" / "state")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--no-train") as node:
        address = node.until_event("started")["addresses"][0]
        running = sapo_node("status", *where).stdout
        node.process.kill()
        node.process.wait()
        killed = sapo_node("status", *where).stdout
    assert "running since " in running
    assert address in running
    assert "not running: it was killed, or its machine stopped" in killed
    assert address not in killed


@pytest.fixture(scope="module")
def message(tmp_path_factory):
    """A message that a real node signed, and its swarm."""
    tmp_path = tmp_path_factory.mktemp("message")
    swarm = write_swarm(tmp_path / "here.toml")
    with RunningProcess(tmp_path / "a", "--swarm", swarm, "--rounds", 1) as node:
        node.until_event("stopped")
    (database,) = (tmp_path / "a" / "state").rglob("node.sqlite")
    with sqlite3.connect(database) as connection:
        (data,) = connection.execute("SELECT message FROM published").fetchone()
    file = tmp_path / "message.cbor"
    file.write_bytes(data)
    return file, swarm


def test_verify_confirms_what_a_node_published_and_refuses_it_once_changed(message):
    file, swarm = message
    done = sapo_node("verify", file, "--swarm", swarm, "--json")
    finding = json.loads(done.stdout)
    assert done.returncode == 0
    assert [group["verdict"] for group in finding["groups"]] == ["holds"] * 4
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    changed = file.with_name("changed.cbor")
    changed.write_bytes(data)
    refused = sapo_node("verify", changed, "--swarm", swarm, "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["refused_by"] == "signature"


def test_verify_under_another_swarm_is_a_bad_signature(message):
    file, _ = message
    assert json.loads(sapo_node("verify", file, "--json").stdout)["refused_by"] == "signature"
