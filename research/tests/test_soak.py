"""What a soak says about its figures and its logs; that it runs at all is shown by a short one, which is slow."""

import ast
import json
import random
import re
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing
from click.testing import CliRunner

import sapo_node
from research.soak import play
from research.soak.__main__ import soak
from research.soak.member import Member
from research.soak.play import Soak
from research.soak.report import EXPLAINED, FAILED_TASKS, slope, sorted_out
from sapo_node.app.state import SCHEMA, state_folder
from sapo_node.groups.record import State
from sapo_node.storage.database import Database
from sapo_node.trust.constants import BAN_EPOCHS, Fact
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError, load_manifest

HOURS = [number / 360 for number in range(720)]
"""Two hours, a sample every ten seconds."""


def test_memory_that_grows_has_a_slope_whose_interval_leaves_out_zero():
    rng = random.Random(1)
    grown = slope(HOURS, [200 + 3 * hour + rng.gauss(0, 1) for hour in HOURS])
    assert grown["low"] < 3 < grown["high"]
    assert grown["low"] > 2


def test_memory_that_never_changes_has_a_slope_and_an_interval_of_nothing():
    assert slope(HOURS, [134.0 for _ in HOURS]) == {"slope": 0.0, "low": 0.0, "high": 0.0}


def test_memory_that_wavers_has_a_slope_whose_interval_holds_zero():
    rng = random.Random(2)
    wavering = slope(HOURS, [200 + rng.gauss(0, 5) for _ in HOURS])
    assert wavering["low"] < 0 < wavering["high"]


def test_lines_that_belong_to_a_fault_are_counted_by_what_they_mean():
    explained, unexplained = sorted_out(
        [
            "connected to 12D3KooWQ4MKT8R8wxccDxhUM3JD1EojH3sDmGaqdDKpMRgSCvsW",
            "lost 12D3KooWQ4MKT8R8wxccDxhUM3JD1EojH3sDmGaqdDKpMRgSCvsW",
            "the learner process ended; next start in 0.5 s",
            "the sandbox process ended before it was ready",
            "stopping after this round; a second Ctrl-C stops at once",
            "took back 12 groups of 2 peers since round 190: the local reward fell; replayed 11 rounds in 10.9 s",
            "made a new key in soak/node1/node.key (mode 0600); this node is 12D3KooWCnm9fRmXZ6u5exnM5VrSvnnvZ",
            "",
        ]
    )
    assert explained == {
        "peers come and go": 2,
        "a learner or sandbox was killed": 2,
        "asked to stop": 1,
        "steps were taken back": 1,
        "a key was made": 1,
    }
    assert unexplained == {}


def node_strings():
    """Each string in the sources of the node, with {} for a value that it is formatted with."""
    for file in Path(sapo_node.__file__).parent.rglob("*.py"):
        for each in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield re.sub(r"%[.\d]*[a-z]", "{}", each.value)
            elif isinstance(each, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in each.values)


def test_each_explained_line_is_one_that_a_node_still_writes():
    explained = {FAILED_TASKS, *(form for forms in EXPLAINED.values() for form in forms)}
    assert explained - {*node_strings()} == set()


@pytest.mark.parametrize(
    "line",
    [
        "the learner failed while it restored step 5 (the learner process died); the node asks again",
        "3 of 3 tasks failed in the sandbox; the first, of dice: the sandbox process died while it worked on a request",
        "the held-out evaluation after round 20 failed: the sandbox process died; the node tries again after round 21",
    ],
)
def test_what_a_dead_learner_or_sandbox_makes_a_node_say_is_explained(line):
    assert sorted_out([line])[1] == {}


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "1 of 3 tasks failed in the sandbox; the first, of chain_sum: it took more than 2 s",
        "ERROR sapo_node.net.gossip_streams: the message handler failed; the message is ignored",
        "the network service failed (KeyError: 1) and starts again in 0.2 s",
        "so much was lost 12D3KooWQ4MKT8R8wxccDxhUM3JD1EojH3sDmGaqdDKpMRgSCvsW",
    ],
)
def test_a_line_that_nobody_expects_is_shown(line):
    assert sorted_out([line, line]) == ({}, {line: 2})


SCRIPT = """
import json, signal, sys, time
def finish(*_):
    print(json.dumps({"event": "round", "step": 2}), json.dumps({"event": "stopped"}), sep="\\n")
    sys.exit()
signal.signal(signal.SIGINT, finish)
if len(sys.argv) == 1:
    print(json.dumps({"event": "round", "step": 1}), flush=True)
time.sleep(60)
"""
"""A node that plays a round when it starts, and one more when it is told to stop."""


class Scripted(Member):
    def command(self):
        return [sys.executable, "-c", SCRIPT]


class Hung(Member):
    """A node that plays no round after it was started again."""

    def command(self):
        return [sys.executable, "-c", SCRIPT, *(["hang"] if self.starts > 1 else ())]


async def first_fault(soak, member):
    soak.members = [member]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(soak._keep, member)
        await member.news.wait()
        nursery.start_soon(soak._trouble)
        while not soak.record.faults:
            await trio.testing.wait_all_tasks_blocked(0.05)
        nursery.cancel_scope.cancel()
    return soak.record.faults[0]


@pytest.mark.parametrize(("kind", "comes_back"), [(Scripted, True), (Hung, False)])
def test_a_stopped_node_has_recovered_when_it_plays_a_round_after_it_was_started_again(
    kind, comes_back, tmp_path, monkeypatch
):
    monkeypatch.setattr(play, "FAULTS", ("stopped",))
    monkeypatch.setattr(play, "FAULT_SECONDS", 0.1)
    monkeypatch.setattr(play, "AWAY_SECONDS", 0.6)  # it is told to a tenth of a second
    monkeypatch.setattr(play, "RECOVERY_SECONDS", 4.0)
    soak = Soak(tmp_path, nodes=3, seconds=60, seed=1)
    member = kind("a", tmp_path / "a", tmp_path / "soak.toml", stays=False)
    fault = trio.run(first_fault, soak, member)
    assert (fault["recovered"] is not None) is comes_back
    assert not comes_back or fault["recovered"] > 0.5


def test_each_peer_that_a_node_has_banned_counts_even_after_its_ban_has_ended(tmp_path):
    member = Member("a", tmp_path / "a", tmp_path / "soak.toml", stays=True)
    folder = state_folder(member.folder, load_manifest("starter"), "peer")
    folder.path.mkdir(parents=True)
    with closing(Database(folder.database, SCHEMA)) as database:
        ledger = Ledger(database)
        for number in range(120):
            for _ in range(4):
                ledger.report(f"attacker {number}", Fact.FALSE_CLAIM)
        member.look()
        ledger.at(BAN_EPOCHS)
        member.look()
    assert len(member.banned) == 120


def test_groups_that_a_node_took_back_are_counted_under_their_peer(tmp_path):
    member = Member("a", tmp_path / "a", tmp_path / "soak.toml", stays=True)
    folder = state_folder(member.folder, load_manifest("starter"), "peer")
    folder.path.mkdir(parents=True)
    insert = (
        "INSERT INTO groups "
        "(peer, epoch, counter, k, envelope_id, state, why, at, dataset, prompt, levels, top, needed) "
        "VALUES (?, 1, 1, ?, '', ?, ?, 0, '', '', '[]', 1, 0)"
    )
    with closing(Database(folder.database, SCHEMA)) as database:
        database.execute(insert, "attacker", 0, State.LEFT_OUT, "taken back: the local reward fell")
        database.execute(insert, "attacker", 1, State.LEFT_OUT, "zero advantage")
        database.execute(insert, "node b", 0, State.TRAINED, "")
    member.look()
    assert member.taken_back == {("attacker", 1, 1, 0)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_soak_ends_with_every_node_back_and_every_line_explained(tmp_path):
    asked = ["--minutes", "5", "--nodes", "4", "--output", str(tmp_path), "--json"]
    result = CliRunner().invoke(soak, asked)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["deaths"] == found["not_recovered"] == []
    assert found["unexplained"] == {}
    assert {each["process"] for each in found["growth"]} == {"main", "learner", "sandbox"}
    assert found["banned"] > 0


def test_a_soak_does_not_begin_in_a_folder_with_something_in_it(tmp_path):
    (tmp_path / "something").touch()
    result = CliRunner().invoke(soak, ["--folder", str(tmp_path), "--output", str(tmp_path / "results")])
    assert isinstance(result.exception, LocalError)
    assert "not empty" in str(result.exception)
