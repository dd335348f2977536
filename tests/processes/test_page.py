"""The page of nodes in processes of their own."""

import re
import time
from urllib.parse import urlsplit

import httpx

from processes import PATIENCE, RunningProcess, sapo_node, write_swarm


def page_of(node):
    return node.until_event("started")["page"]


def test_the_metrics_of_a_relay_follow_a_peer_that_comes_and_goes_when_the_operator_bans_it(tmp_path):
    swarm, folder = write_swarm(tmp_path / "relays.toml"), tmp_path / "a"
    arguments = ("--swarm", swarm, "--no-train", "--dashboard", "127.0.0.1:0")
    with RunningProcess(folder, *arguments) as relay:
        started = relay.until_event("started")
        assert connected(started["page"]) == 0
        with RunningProcess(tmp_path / "b", *arguments, "--bootstrap", started["addresses"][0]) as other:
            peer = other.until_event("started")["peer_id"]
            until_connected(started["page"], 1)
            done = sapo_node("ban", peer, "--swarm", swarm, "--key", folder / "node.key", "--state", folder / "state")
            assert done.returncode == 0, done.stderr
            until_connected(started["page"], 0)


def connected(page):
    [count] = re.findall(r"^sapo_peers_connected (\S+)$", httpx.get(page + "metrics").text, re.MULTILINE)
    return float(count)


def until_connected(page, count):
    deadline = time.monotonic() + PATIENCE
    while connected(page) != count:
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
