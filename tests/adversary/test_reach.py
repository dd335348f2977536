"""Gossip among many peers: meshes as nodes make them, and one message's way through them."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sapo_adversary.cli import cli
from sapo_adversary.reach.cost import Swarm, measure
from sapo_adversary.reach.overlay import overlay
from sapo_adversary.reach.spread import Wire, send
from sapo_node.net.dialer import ENOUGH as DIALS
from sapo_node.net.host import CONNECTIONS
from sapo_node.net.service import DEGREE_HIGH as HIGH
from sapo_node.net.service import DEGREE_LOW as LOW
from sapo_node.net.steady import DIALLED

COUNT = 150


@pytest.fixture(scope="module")
def peers():
    return overlay(COUNT, random.Random(1))


def test_a_mesh_has_both_ends_and_the_size_that_nodes_keep(peers):
    for number, peer in enumerate(peers):
        assert all(number in peers[other].mesh for other in peer.mesh)
        assert peer.mesh <= peer.connected
        assert LOW <= len(peer.mesh) <= HIGH
        assert len(peer.mesh & peer.dialled) >= min(DIALLED, len(peer.dialled))
        assert len(peer.connected) <= CONNECTIONS
        assert len(peer.dialled) == min(number, DIALS)


def test_without_loss_everybody_has_a_message_and_nobody_asks(peers):
    way = send(peers, 3, 1024, Wire(loss=0.0), random.Random(2))
    assert len(way.times) == COUNT - 1
    assert way.copies >= COUNT - 1


def test_what_is_lost_is_offered_and_asked_for(peers):
    way = send(peers, 3, 1024, Wire(loss=0.6), random.Random(2))
    assert len(way.times) > 0.95 * COUNT
    assert way.asked > 0


def test_a_message_takes_longer_where_links_are_longer(peers):
    near, far = (send(peers, 3, 1024, Wire(delay=delay), random.Random(2)) for delay in (0.01, 0.2))
    assert far.times[-1] > near.times[-1]


def test_a_swarm_twice_as_large_costs_each_node_twice_as_much_on_one_topic_and_no_more_on_two():
    small = Swarm(100, 30.0, 32)
    large, spread = replace(small, peers=200), replace(small, peers=200, shards=2)
    once, twice, halved = (measure(swarm, seed=1) for swarm in (small, large, spread))
    assert twice["cpu"] == pytest.approx(2 * once["cpu"], rel=0.2)
    assert halved["cpu"] == pytest.approx(once["cpu"], rel=0.01)


def test_who_cannot_keep_up_has_no_time_to_tell():
    found = measure(Swarm(60, 0.1, 128), seed=1)
    assert found["cpu"] > 1
    assert found["seconds_to_99"] is None


def test_the_command_writes_what_it_shows(tmp_path):
    arguments = ["reach", "--peers", "40", "--output", str(tmp_path), "--json"]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    written = json.loads((tmp_path / "reach.json").read_text())
    assert json.loads(done.stdout) == written
    assert [each["peers"] for each in written["swarms"]] == [40]


def test_the_table_on_the_page_is_the_committed_one():
    root = Path(__file__).parents[2]
    swarms = json.loads((root / "tests/benchmarks/results/reach.json").read_text())["swarms"]
    rows = re.findall(
        r"^\| ([\d,]+) \| (\d) of ([\d,]+) \|.* (\d+)% \| (\d+)% \|", (root / "docs/load.md").read_text(), re.MULTILINE
    )
    shown = [[int(cell.replace(",", "")) for cell in row] for row in rows]
    keys = ("peers", "heard", "shards")
    assert shown == [
        [*(each[key] for key in keys), *(round(100 * each[key]) for key in ("cpu", "upload"))] for each in swarms
    ]
