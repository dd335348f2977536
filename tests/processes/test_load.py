"""A load test as a user runs it: locust against a live node."""

import csv
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

import sapo_adversary.load
from processes import ENVIRONMENT, PATIENCE, RunningProcess, run, write_swarm
from sapo_adversary.load.keys import identity_of

LOCUSTFILE = Path(sapo_adversary.load.__file__).parent / "locustfile.py"


UNTIL_ENOUGH = """
import gevent
from locust import events
from sapo_adversary.load import locustfile
from sapo_adversary.load.locustfile import *

@events.init.add_listener
def watch(environment, **_):
    @events.request.add_listener
    def end(**_):
        delivered = environment.stats.entries.get(("4096 bytes", "valid"))
        under_way = {kind for helper in locustfile._helpers for kind, _ in helper._sent.values()}
        if delivered and delivered.num_requests >= 8 and under_way >= set(locustfile.BAD):
            events.request.remove_listener(end)
            gevent.spawn(environment.runner.quit)
"""
"""A locustfile that ends the test after eight deliveries, when a bad message of each kind is on its way: in a set time
a busy machine sends none."""


def locust(target, folder, *arguments, file=LOCUSTFILE, patience=PATIENCE):
    """Run it without its page, to the end."""
    command = [
        *(sys.executable, "-m", "locust", "-f", str(file), "--host", target, "--headless", "--only-summary"),
        *("--csv", str(folder / "load"), *map(str, arguments)),
    ]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=patience, check=False, cwd=folder
    )


def sapo_adversary_says(*arguments):
    """What a command of the adversary prints."""
    done = run("sapo-adversary", *arguments)
    assert done.returncode == 0, done
    return done.stdout


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
        mix = ("-u", 4, "-r", 4, "-t", "100s", "--per-second", 4, "--bad-share", 0.3, "--message-bytes", 4096)
        (folder / "enough.py").write_text(UNTIL_ENOUGH)
        done = locust(target, folder, "--swarm", swarm, "--keys-from", "test", *mix, file=folder / "enough.py")
    return folder, done


def test_every_valid_message_is_delivered_and_timed(loaded):
    folder, done = loaded
    assert done.returncode == 0, done.stderr
    valid = rows(folder)["valid"]
    assert int(valid["Request Count"]) >= 8
    assert int(valid["Failure Count"]) == 0
    assert 0 < float(valid["Median Response Time"]) < 5_000


@pytest.mark.parametrize("kind", ["forged", "stale", "garbage"])
def test_no_bad_message_is_passed_on(loaded, kind):
    folder, _ = loaded
    bad = rows(folder)[kind]
    assert int(bad["Request Count"]) > 0
    assert int(bad["Failure Count"]) == 0


@pytest.mark.slow
def test_a_bad_message_that_was_never_sent_is_a_failure(tmp_path):
    swarm = write_swarm(tmp_path / "few.toml", max_rounds=2)
    with RunningProcess(tmp_path / "node", "--no-train", "--swarm", swarm, "--dashboard", "off") as node:
        target = node.until_event("started")["addresses"][0]
        done = locust(
            target, tmp_path, "--swarm", swarm, "-u", 1, "-t", "15s", "--bad-share", 1, "--message-bytes", 4096
        )
    assert done.returncode == 1
    assert int(rows(tmp_path)["stale"]["Failure Count"]) > 0


@pytest.mark.slow
def test_users_that_start_at_once_send_at_the_rate_of_strangers_without_a_failure(tmp_path):
    swarm = write_swarm(tmp_path / "usual.toml", max_rounds=2_400)
    with RunningProcess(tmp_path / "node", "--no-train", "--swarm", swarm, "--dashboard", "off") as node:
        target = node.until_event("started")["addresses"][0]
        done = locust(target, tmp_path, "--swarm", swarm, "-u", 2, "-r", 2, "-t", "12s", "--message-bytes", 4096)
    assert done.returncode == 0, done.stdout
    assert int(rows(tmp_path)["valid"]["Request Count"]) >= 4


@pytest.mark.slow
def test_the_csv_has_every_message_of_the_summary_however_seldom_locust_writes_it(tmp_path):
    swarm = write_swarm(tmp_path / "usual.toml", max_rounds=2_400)
    seldom = tmp_path / "seldom.py"
    seldom.write_text(
        "from locust import stats\nfrom sapo_adversary.load.locustfile import *\nstats.CSV_STATS_INTERVAL_SEC = 6\n"
    )
    with RunningProcess(tmp_path / "node", "--no-train", "--swarm", swarm, "--dashboard", "off") as node:
        target = node.until_event("started")["addresses"][0]
        mix = ("-u", 1, "-t", "10s", "--per-second", 2, "--message-bytes", 4096)
        done = locust(target, tmp_path, "--swarm", swarm, *mix, file=seldom)
    told = re.search(r"Aggregated +(\d+) ", done.stdout + done.stderr)
    assert int(rows(tmp_path)["valid"]["Request Count"]) == int(told[1]) > 0


@pytest.mark.slow
def test_a_load_test_that_sent_nothing_fails(tmp_path):
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/" + identity_of("nobody", 0).peer_id
    done = locust(nowhere, tmp_path, "-u", 1, "-t", "3s")
    assert done.returncode == 1
    assert "no message was sent" in done.stderr


@pytest.mark.slow
def test_a_swarm_without_a_manifest_is_named(tmp_path):
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/" + identity_of("nobody", 0).peer_id
    done = locust(nowhere, tmp_path, "--swarm", "startr", "-u", 1, "-t", "2s")
    assert done.returncode != 0
    assert "no manifest 'startr'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_host_that_is_no_full_address_is_refused_with_what_to_give(tmp_path):
    done = locust("127.0.0.1:4001", tmp_path, "-u", 1, "-t", "2s")
    assert done.returncode != 0
    assert "/p2p/" in done.stderr


@pytest.mark.slow
def test_a_target_that_is_not_there_is_named(tmp_path):
    nowhere = "/ip4/127.0.0.1/tcp/9/p2p/" + identity_of("nobody", 0).peer_id
    done = locust(nowhere, tmp_path, "-u", 1, "-t", "60s")
    assert done.returncode != 0
    assert "is the node running" in done.stderr


class Page:
    """Locust with its page."""

    def __init__(self, folder, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--web-host", "127.0.0.1"]
        command += ["--web-port", str(port), *map(str, arguments)]
        self._process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL, cwd=folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(PATIENCE)

    def ask(self, path, **form):
        """What it answers, once it is served."""
        data = urllib.parse.urlencode(form).encode() or None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(self._address + path, data, timeout=PATIENCE) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError:
                raise
            except urllib.error.URLError:
                assert time.monotonic() < end
                time.sleep(0.2)

    def stop(self):
        """End the test that runs. An older locust is asked for that without a form."""
        try:
            self.ask("/stop", user_count=2)
        except urllib.error.HTTPError:
            self.ask("/stop")

    def kinds(self):
        """The kinds of the first requests of the test that runs."""
        end = time.monotonic() + PATIENCE
        while not (rows := self.ask("/stats/requests")["stats"][:-1]):
            assert time.monotonic() < end
            time.sleep(0.2)
        return {row["method"] for row in rows}


@pytest.mark.slow
def test_five_minutes_as_the_page_tells_have_no_failure(tmp_path):
    config = tmp_path / "load.toml"
    config.write_text(sapo_adversary_says("load-keys", "--users", 8))
    with RunningProcess(tmp_path / "node", "--no-train", "--dashboard", "off", "--config", config) as node:
        target = node.until_event("started")["addresses"][0]
        mix = ("-u", 8, "-r", 2, "-t", "5m", "--per-second", 1, "--message-bytes", 32_768, "--bad-share", 0.25)
        done = locust(target, tmp_path, *mix, patience=300 + PATIENCE)
    assert done.returncode == 0, done.stdout
    assert int(rows(tmp_path)["valid"]["Request Count"]) > 1_000


@pytest.mark.slow
def test_a_second_test_on_locusts_page_has_the_users_of_the_first(tmp_path):
    swarm = write_swarm(tmp_path / "again.toml")
    config = tmp_path / "node.toml"
    config.write_text(f"banned = {json.dumps([identity_of('again', user).peer_id for user in (2, 3)])}\n")
    arguments = ("--no-train", "--swarm", swarm, "--dashboard", "off", "--config", config)
    with RunningProcess(tmp_path / "node", *arguments) as node:
        target = node.until_event("started")["addresses"][0]
        with Page(tmp_path, "--swarm", swarm, "--keys-from", "again") as page:
            for _ in range(2):
                page.ask("/swarm", user_count=2, spawn_rate=2, host=target)
                assert page.kinds() == {"valid"}
                page.stop()


@pytest.mark.slow
def test_locust_of_several_processes_is_refused_with_what_to_leave_out(tmp_path):
    done = locust(
        "/ip4/127.0.0.1/tcp/9/p2p/" + identity_of("nobody", 0).peer_id, tmp_path, "--processes", 2, "-t", "2s"
    )
    assert done.returncode != 0
    assert "leave out --processes" in done.stderr
