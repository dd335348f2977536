"""`sapo-node init`, as its users run it: with options, and at a terminal."""

import json
import os
import pty
import stat
from pathlib import Path

import pytest

from processes import sapo_node
from sapo_node.app.config import Config, load_config
from sapo_node.cli.main import main


def test_init_writes_what_was_meant_and_a_key_and_overwrites_a_file_only_by_force(tmp_path, monkeypatch, run_here):
    monkeypatch.chdir(tmp_path)
    written = tmp_path / "node.toml"
    written.write_text("# mine\n")
    asked = (
        "init",
        "--prompts",
        2,
        "--state",
        "state",
        "--network",
        "manual",
        "--listen",
        "/ip4/127.0.0.1/tcp/0",
        "--json",
    )
    code, refused = run_here(main, *asked)
    assert code == 1
    assert refused.err == "error: node.toml exists: give another path, or overwrite it with --force\n"
    assert list(tmp_path.iterdir()) == [written]
    assert written.read_text() == "# mine\n"
    code, done = run_here(main, *asked, "--force")
    assert code == 0, done.err
    said = json.loads(done.out)
    assert said["command"] == "sapo-node start --config node.toml"
    assert said["expected"]["learnable"]
    assert 0 < said["expected"]["round_seconds"] <= said["expected"]["full_round_seconds"]
    meant = {"lora": 0, "learning_rate": 2e-4, "dtype": "float32", "max_tokens": 80, "examples": 0}
    listen = ("/ip4/127.0.0.1/tcp/0",)
    assert load_config(Path("node.toml")) == Config(state="state", network="manual", listen=listen, **meant)
    assert stat.S_IMODE((tmp_path / "node.key").stat().st_mode) == 0o600
    assert "not started yet" in run_here(main, "status", "--state", "state")[1].out


@pytest.mark.slow
def test_the_node_of_a_configuration_is_the_same_from_every_folder(tmp_path, monkeypatch, run_here):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    for here, file in ((home, "node.toml"), (elsewhere, "../home/other.toml")):
        monkeypatch.chdir(here)
        begun = run_here(
            main, "init", file, "--no-train", "--state", "state", "--key", f"{here.name}.key", "--network", "manual"
        )
        assert begun[0] == 0, begun[1].err
        monkeypatch.chdir(tmp_path)
        code, told = run_here(main, "status", "--config", (here / file).resolve())
        assert code == 0, told.err
        assert "not started yet" in told.out
    assert not list(tmp_path.glob("*.key"))


def test_at_a_terminal_init_asks_and_takes_the_answers(tmp_path):
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, os.fdopen(theirs) as terminal:
        keyboard.write(b"interop\n/ip4/192.0.2.7/tcp/4001/p2p/12D3KooWnonsense\n")
        done = sapo_node("init", "--no-train", stdin=terminal.fileno(), cwd=tmp_path)
    assert "Model" not in done.stderr, "a node that does not train has none"
    assert "Swarm [starter]: " in done.stderr
    assert "error: '/ip4/192.0.2.7/tcp/4001/p2p/12D3KooWnonsense' cannot be" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
