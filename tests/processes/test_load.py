"""A load test as a user runs it: locust against a live node."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

import sapo_adversary.research.load
from processes import ENVIRONMENT, PATIENCE, RunningProcess, write_swarm
from sapo_adversary.research.load.keys import identity_of

LOCUSTFILE = Path(sapo_adversary.research.load.__file__).parent / "locustfile.py"


def locust(target, folder, *arguments):
    """Run it without its page, to the end."""
    command = [
        *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--host", target, "--headless", "--only-summary"),
        *("--csv", str(folder / "load"), *map(str, arguments)),
    ]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder
    )


def sapo_adversary_says(*arguments):
    """What a command of the adversary prints."""
    command = [sys.executable, "-c", "from sapo_adversary.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def rows(folder):
    """What the CSV says, by kind of message."""
    with (folder / "load_stats.csv").open() as file:
        return {row["Type"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A node that met three honest publishers and a bad one: its last words, and those of locust."""
    folder = tmp_path_factory.mktemp("load")
    swarm = write_swarm(folder / "loaded.toml")
    config = folder / "node.toml"
    config.write_text(sapo_adversary_says("load-keys", "--users", 4, "--keys-from", "test"))
    with RunningProcess(folder / "node", "--no-train", "--swarm", swarm, "--config", config) as node:
        target = node.until_event("started")["addresses"][0]
        mix = ("-u", 4, "-r", 4, "-t", "8s", "--per-second", 3, "--bad-share", 0.25, "--message-bytes", 4096)
        done = locust(target, folder, "--swarm", swarm, "--keys-from", "test", *mix)
    return folder, done


def test_every_valid_message_is_delivered_and_timed(loaded):
    folder, done = loaded
    assert done.returncode == 0, done.stderr
    valid = rows(folder)["valid"]
    assert int(valid["Request Count"]) >= 8  # however busy the machine is
    assert int(valid["Failure Count"]) == 0
    assert 0 < float(valid["Median Response Time"]) < 5_000


@pytest.mark.parametrize("kind", ["forged", "stale", "garbage"])
def test_no_bad_message_is_passed_on(loaded, kind):
    folder, _ = loaded
    bad = rows(folder)[kind]
    assert int(bad["Request Count"]) > 0
    assert int(bad["Failure Count"]) == 0


def test_a_host_that_is_no_full_address_is_refused_with_what_to_give(tmp_path):
    done = locust("127.0.0.1:4001", tmp_path, "-u", 1, "-t", "2s")
    assert done.returncode != 0
    assert "/p2p/" in done.stderr


def test_a_target_that_is_not_there_is_named(tmp_path):
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/" + identity_of("nobody", 0).peer_id
    done = locust(nowhere, tmp_path, "-u", 1, "-t", "60s")
    assert done.returncode != 0
    assert "is the node running" in done.stderr
