"""One line says how a node is, the same on page, terminal and `status`: each state that it can name is made here."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from books import book_of
from sapo_node.app.events import Played
from sapo_node.cli.live_view import print_json_line
from sapo_node.cli.tables import Screen
from sapo_node.groups.record import State, Unusable
from sapo_node.observability import condition
from sapo_node.observability.condition import STANDING, condition_of, duration
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.dashboard.prometheus import exposition
from sapo_node.observability.history import History
from sapo_node.observability.overview import LAST_ROUNDS, overview
from sapo_node.training.health import HealthAlarm
from sapo_node.training.round import RoundReport
from sapo_node.training.take_back import TakenBack
from swarm_parts import TRAINING

NOW = 1_800_000_000.0
PEERS = ("12D3KooWone", "12D3KooWtwo")
CONNECTED = {"started": NOW - 900, "connected": PEERS}
ALONE = {"started": NOW - 900, "connected": (), "alone_since": NOW - 250}
REPORT = RoundReport(1, 5, 1, NOW, True, 0.25, 0.25, 2, 4, 1, 1, 0.75, {"generate": 1.0, "train": 2.0}, TRAINING)
TAKEN = TakenBack(1, 38, 40, "completions said", "x", 2, 1, NOW, 1.0, "")
ALARM = HealthAlarm(1, "entropy", 40, "the entropy fell", NOW)


def told(database, session, *, runs=True, starting=(), rounds=0, **changes):
    for step in range(1, rounds + 1):
        History(database).record(replace(REPORT, step=step))
    view = replace(overview(database), session=session, **changes)
    return condition_of(view, runs=runs, now=NOW, starting=starting)


def enter(database, *, peer, state, why="", step=None, count=1):
    book = book_of(database)
    [(before,)] = database.rows("SELECT count(*) FROM groups")
    for number in range(before, before + count):
        book._insert((peer, 5, number, 0), "ab", state, why=why)
        database.execute("UPDATE groups SET step = ? WHERE counter = ?", step, number)


def waits(**more):
    return [{"what": "the end of listening, before it publishes", "until": NOW + 432, **more}]


STATES = {
    "never started": ({}, {"runs": False}, "not started yet"),
    "ended by an error": (
        {"stopped": NOW, "failure": "the disk is full"},
        {"runs": False},
        "by an error: the disk is full",
    ),
    "stopped": ({"stopped": NOW}, {"runs": False}, "stopped "),
    "killed": ({"started": NOW}, {"runs": False}, "not running: it was killed"),
    "stopping": ({**CONNECTED, "standing": {"stopping": " after this round"}}, {}, "stopping after this round"),
    "starting": ({"started": NOW}, {"starting": ["sandbox", "model"]}, "starting: waits for sandbox, model"),
    "before genesis": ({**ALONE, "genesis": NOW + 60}, {}, "waiting for the swarm, which begins"),
    "publishing paused": (
        {**CONNECTED, "waits": waits(why="the clock jumped")},
        {},
        "learning; publishes nothing for 7:12, because the clock jumped",
    ),
    "trainer awaited": ({**CONNECTED, "standing": {"trainer": "asks for no work"}}, {}, "waiting for the trainer"),
    "steps taken back": (CONNECTED, {"rounds": 41, "taken_back": [TAKEN]}, "learning; after an alarm, took back"),
    "policy decays": (CONNECTED, {"rounds": 41, "health_alarms": [ALARM]}, "learning; an alarm in round 40"),
    "alone by choice": ({**CONNECTED, "takes_none": True}, {}, "learning alone: --external 0"),
    "no peer": (ALONE, {}, "learning alone: no peer connected for 4 min"),
    "first rounds": (CONNECTED, {}, "learning, with 2 peers connected"),
    "nothing taken": (
        CONNECTED,
        {"rounds": LAST_ROUNDS},
        "learning alone: 2 peers connected, and no group of a peer was trained on in the last 20 rounds",
    ),
    "works with peers": (
        {**CONNECTED, "role": "contributes"},
        {},
        "sharing completions, with 2 peers connected",
    ),
    **{
        part: ({**CONNECTED, "standing": {part: "its own words"}}, {}, f"{words}its own words")
        for part, (words, _) in STANDING.items()
    },
}


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_named(database, state):
    session, facts, text = STATES[state]
    found = told(database, session, **facts)
    assert found.state == state
    assert text in found.text


def test_a_node_learns_from_the_peers_of_whose_groups_it_trained_on_some_lately(database):
    for peer in PEERS:
        enter(database, peer=peer, state=State.TRAINED, step=30, count=2)
    enter(database, peer="12D3KooWlongago", state=State.TRAINED, step=1)
    enter(database, peer="", state=State.OWN, step=30)
    assert told(database, CONNECTED, rounds=30).text == "learning from 2 peers"


def test_a_node_that_lost_its_last_peer_a_moment_ago_still_learns_from_it(database):
    enter(database, peer=PEERS[0], state=State.TRAINED, step=1)
    assert told(database, {**ALONE, "alone_since": NOW - 20}, rounds=1).text == "learning from 1 peer"
    assert told(database, ALONE, rounds=1).state == "no peer"


@pytest.mark.parametrize(("others", "state"), [(16, "first rounds"), (15, "version drift")])
def test_groups_of_other_tasks_are_a_sign_of_another_version_if_they_are_most_of_the_newest(database, others, state):
    enter(database, peer=PEERS[0], state=State.LEFT_OUT, why=Unusable.OTHER_TASK, count=16)
    enter(database, peer=PEERS[1], state=State.VERIFIED, count=others)
    assert told(database, CONNECTED).state == state


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("feeds", "learning alone: no peer connected for 4 min"),
        ("contributes", "sharing completions: no peer connected for 4 min"),
        ("relays", "verifying and relaying: no peer connected for 4 min"),
    ],
)
def test_each_kind_of_node_says_what_it_does_without_a_peer(database, role, text):
    assert told(database, {**ALONE, "role": role}).text == text


def test_a_wait_that_does_not_keep_the_node_from_publishing_is_no_pause(database):
    assert told(database, {**CONNECTED, "waits": waits()}).state == "first rounds"


def test_old_alarms_are_told_no_more(database):
    found = told(database, CONNECTED, rounds=61, taken_back=[TAKEN], health_alarms=[ALARM])
    assert found.state == "nothing taken"


def test_what_needs_a_person_comes_before_what_passes_by_itself(database):
    session = {**ALONE, "waits": waits(why="x"), "standing": {"server": "refused", "rounds": "2 of 5"}}
    assert told(database, session).state == "rounds"
    assert str(told(database, {**ALONE, "standing": {"server": "refused"}})).startswith(
        "attention: the generation server fails, and the node samples by itself: refused. Start or repair"
    )


def test_every_state_in_the_code_is_made_here():
    written = re.findall(r'_State\(\s*"([^"]+)"', Path(condition.__file__).read_text())
    assert {*written, *STANDING} - {"learning from peers", "version drift"} == set(STATES)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.9, "59 s"), (250, "4 min"), (7_300, "2 h"), (2e5, "2 d")]
)
def test_a_duration_is_in_its_largest_unit(seconds, text):
    assert duration(seconds) == text


def test_page_terminal_metrics_and_json_begin_with_the_same_line(database, capsys):
    History(database).describe_session({**ALONE, "alone_since": time.time() - 250, "standing": {"server": "gone"}})
    view = overview(database)
    line = condition_of(view, runs=True, now=time.time())
    assert Facts(database).state()["condition"] == line.as_dict()
    assert "sapo_attention 1.0" in exposition(view).decode()
    print_json_line(Played(REPORT, view))
    assert json.loads(capsys.readouterr().out)["condition"] == line.as_dict()
    console = Console(width=200)
    with console.capture() as capture:
        console.print(Screen(view))
    assert capture.get().startswith(str(line))
