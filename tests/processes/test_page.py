"""The page of nodes in processes of their own."""

import re
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest

from processes import PATIENCE, RunningProcess, write_swarm
from sapo_node.cli.main import main

ANSWERS = """import json, sys
for _ in sys.stdin:
    print(json.dumps(["<answer>1</answer>"]), flush=True)
"""


def page_of(node):
    return node.until_event("started")["page"]


def test_the_metrics_of_a_relay_follow_a_peer_that_comes_and_goes_when_the_operator_bans_it(tmp_path, run_here):
    swarm, folder = write_swarm(tmp_path / "relays.toml"), tmp_path / "a"
    arguments = ("--swarm", swarm, "--no-train", "--dashboard", "127.0.0.1:0")
    with RunningProcess(folder, *arguments) as relay:
        started = relay.until_event("started")
        assert connected(started["page"]) == 0
        with RunningProcess(tmp_path / "b", *arguments, "--bootstrap", started["addresses"][0]) as other:
            peer = other.until_event("started")["peer_id"]
            until_connected(started["page"], 1)
            where = ("--swarm", swarm, "--key", folder / "node.key", "--state", folder / "state")
            code, said = run_here(main, "peers", "ban", peer, *where)
            assert code == 0, said
            until_connected(started["page"], 0)


@pytest.mark.slow
def test_the_metrics_of_a_relay_follow_a_peer_that_is_killed_and_comes_back(tmp_path):
    swarm = write_swarm(tmp_path / "relays.toml")
    arguments = ("--swarm", swarm, "--no-train", "--dashboard", "127.0.0.1:0")
    with RunningProcess(tmp_path / "a", *arguments) as relay:
        started = relay.until_event("started")
        for _ in range(2):
            with RunningProcess(tmp_path / "b", *arguments, "--bootstrap", started["addresses"][0]):
                until_connected(started["page"], 1)
            until_connected(started["page"], 0)


@pytest.mark.slow
def test_the_metrics_of_a_node_that_waits_for_the_next_epoch_count_what_it_accepts(tmp_path):
    swarm = write_swarm(tmp_path / "waiting.toml", epoch_seconds=3_600, max_rounds=1)
    (tmp_path / "node.toml").write_text("local = 1\neval_every = 0\n")
    common = ("--swarm", swarm, "--config", tmp_path / "node.toml")
    with RunningProcess(tmp_path / "a", *common) as node:
        started = node.until_event("started")
        node.until_round(1)
        assert metric(started["page"], "envelopes_accepted_total") == 0
        (tmp_path / "answers.py").write_text(ANSWERS)
        answers = ("--program", f"{sys.executable} {tmp_path / 'answers.py'}", "--bootstrap", started["addresses"][0])
        with RunningProcess(tmp_path / "b", *common, *answers, command="contribute") as other:
            other.until_event("shared")
            until(started["page"], "envelopes_accepted_total", 1)


def connected(page):
    return metric(page, "peers_connected")


def metric(page, name):
    [value] = re.findall(rf"^sapo_{name} (\S+)$", httpx.get(page + "metrics").text, re.MULTILINE)
    return float(value)


def until_connected(page, count):
    until(page, "peers_connected", count)


def until(page, name, value):
    deadline = time.monotonic() + PATIENCE
    while metric(page, name) != value:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_the_token_is_told_as_soon_as_the_page_is_up_and_survives_a_restart_in_a_file_of_its_own(tmp_path):
    swarm = write_swarm(tmp_path / "token.toml")
    arguments = ("--swarm", swarm, "--no-train", "--dashboard", "0.0.0.0:0")
    with RunningProcess(tmp_path / "a", *arguments) as node:
        page = node.until_event("page")["page"]
        assert httpx.get(page, follow_redirects=True).status_code == 200  # the address that is told can be opened
        assert page_of(node) == page
        files = [each for each in (tmp_path / "a" / "state").rglob("*") if each.is_file()]
        stored = {each.name: each.read_bytes() for each in files}
    token = urlsplit(page).query.removeprefix("token=").encode()
    assert f"127.0.0.1:{urlsplit(page).port}".encode() in b"".join(stored.values())
    assert [name for name, content in stored.items() if token in content] == ["page-token"]
    with RunningProcess(tmp_path / "a", *arguments) as node:
        assert node.until_event("page")["page"].endswith(token.decode())
