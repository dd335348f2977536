"""What a round is told by: its phases while it lasts, its metrics afterwards."""

import json
import random
import time
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

from sapo_node.app.config import Config
from sapo_node.app.events import Noticed, PageServed, Phased, Played, Refreshed, Started, Stopped
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.cli.live_view import LiveView, _Screen, print_json_line
from sapo_node.cli.terminal import Terminal
from sapo_node.groups.levels import Levels
from sapo_node.groups.record import TaskAnswers
from sapo_node.observability.history import MAX_EVALUATIONS, MAX_ROUNDS, History
from sapo_node.observability.overview import overview
from sapo_node.observability.stored import METRICS, metrics
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.keys import Identity
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.round import RoundReport
from sapo_node.trust.constants import STRANGERS_SHARE, Fact
from sapo_node.trust.ledger import Ledger
from swarm_parts import TRAINING, KnowingScorer, Oracle

REPORT = RoundReport(
    epoch=3,
    counter=5,
    step=7,
    at=1_800_000_000.5,
    published=True,
    reward=0.25,
    pass_rate=0.25,
    informative=2,
    local=4,
    external=1,
    drawn=2,
    strangers_share=0.75,
    seconds={"generate": 1.0, "train": 2.0},
    training=TRAINING,
    rate_scale=0.5,
    filtered={"length": 3},
    replayed=3,
)
NOTICE = {"at": 1_800_000_000.0, "level": "info", "text": "something happened"}


def test_every_metric_is_the_figure_it_names():
    assert metrics(REPORT) == {
        "step": 7,
        "at": 1_800_000_000.5,
        "epoch": 3,
        "counter": 5,
        "published": True,
        "reward": 0.25,
        "pass_rate": 0.25,
        "local": 4,
        "informative": 2,
        "replayed": 3,
        "external": 1,
        "drawn": 2,
        "strangers_share": 0.75,
        "external_weight": 0.7,
        "loss": -0.5,
        "grad_norm": 1.25,
        "learning_rate": 0.001,
        "rate_scale": 0.5,
        "entropy": 0.4,
        "mean_length": 20.5,
        "truncated": 0.125,
        "zero_advantage": 0.75,
        "local_tokens": 300,
        "external_tokens": 200,
        "masked_tokens": 40,
        "refused": 1,
        "filtered": {"length": 3},
        "skipped": "no group has an advantage",
        "seconds": {"generate": 1.0, "train": 2.0},
    }


def test_every_metric_is_documented_in_the_order_it_comes():
    assert list(metrics(REPORT)) == list(METRICS)


def test_rounds_after_a_step_come_in_order_and_a_repeated_one_counts_once(database):
    history = History(database)
    for step in (1, 2, 3, 2):
        history.record(replace(REPORT, step=step, reward=step / 10))
    assert [each["step"] for each in history.rounds_after(1)] == [2, 3]
    assert history.curve(60).means == [0.1, 0.2, 0.3]


def test_a_curve_covers_the_rounds_that_are_kept_no_more(database):
    history = History(database)
    for step in range(1, 300):
        history.record(replace(REPORT, step=step, reward=step / 1_000))
        database.execute("DELETE FROM rounds")
    points = history.points()
    assert (points[0].first, points[-1].last, sum(point.rounds for point in points)) == (1, 299, 299)
    assert points[0].seconds == REPORT.seconds


def test_held_out_looks_are_thinned_and_the_first_and_the_last_stay(database):
    history = History(database)
    for step in range(MAX_EVALUATIONS * 2):
        history.examine(step, HeldOut({"products": (Levels((0,)), Levels((1,)))}), at=0.0)
    steps = [each["step"] for each in history.evaluations()]
    assert len(steps) <= MAX_EVALUATIONS
    assert (steps[0], steps[-1]) == (0, MAX_EVALUATIONS * 2 - 1)
    assert len(steps) > MAX_EVALUATIONS / 2


def test_a_new_held_out_look_stays_also_where_an_older_version_kept_more(database):
    history = History(database)
    figures = {"at": 0.0, "pass_at_1": 0.5, "low": 0.4, "high": 0.6, "reward": 0.5, "per_task": {}}
    for step in range(MAX_EVALUATIONS + 1):
        database.execute("INSERT INTO exams VALUES (?, ?)", step, json.dumps({"step": step, **figures}))
    history.examine(1_000, HeldOut({"products": (Levels((0,)), Levels((1,)))}), at=0.0)
    assert history.evaluations()[-1]["step"] == 1_000


def test_only_the_newest_rounds_are_kept(database):
    history = History(database)
    for step in (1, 2, MAX_ROUNDS + 1):
        history.record(replace(REPORT, step=step))
    assert [each["step"] for each in history.rounds_after(0)] == [2, MAX_ROUNDS + 1]


def test_phases_and_refreshed_facts_are_no_json_lines(database, capsys):
    print_json_line(Phased("verify"))
    print_json_line(Refreshed(lambda: overview(database)))
    print_json_line(Played(REPORT, overview(database)))
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["entropy"] == 0.4


def test_every_json_line_says_when_it_was(database, capsys):
    view = overview(database)
    for event in (Started(view), Noticed(NOTICE), Played(REPORT, view), Stopped(view)):
        print_json_line(event)
    [*others, round_line, stopped] = [json.loads(line)["at"] for line in capsys.readouterr().out.splitlines()]
    assert round_line == REPORT.at
    assert all(abs(at - time.time()) < 60 for at in (*others, stopped))


def test_a_look_at_held_out_questions_says_when_it_was(database):
    history = History(database)
    history.examine(5, HeldOut({"products": (Levels((0,)), Levels((1,)))}), at=1_800_000_000.25)
    [evaluation] = history.evaluations()
    assert (evaluation["step"], evaluation["at"]) == (5, 1_800_000_000.25)


def shown(screen, width=100):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - ends with the test
    console.print(screen)
    return console.export_text()


def test_a_screen_shows_phases_and_notices_as_they_come(database):
    screen = _Screen(Console(height=24))
    screen.take(PageServed("http://127.0.0.1:8080/"))
    assert "starting …  page http://127.0.0.1:8080/" in shown(screen)
    screen.take(Started(overview(database)))
    screen.take(Phased("verify"))
    screen.take(Noticed(NOTICE))
    assert "verify" in shown(screen)
    assert "something happened" in shown(screen)
    screen.take(Phased(None))
    assert "between rounds" in shown(screen)


@pytest.mark.parametrize(("page", "tail"), [("http://127.0.0.1:8080/?token=a", "the page is {page}"), ("", "/ip4/1")])
def test_where_there_is_no_terminal_the_first_line_says_where_the_page_is(database, capsys, page, tail):
    History(database).describe_session({"peer_id": "12D3", "addresses": ["/ip4/1"], "page": page})
    with LiveView() as view:
        view(Started(overview(database)))
    assert capsys.readouterr().out.splitlines()[-1].endswith(tail.format(page=page))


def test_a_terminal_gets_each_address_whole_on_one_line(database, capsys, monkeypatch):
    address = f"/ip4/192.168.100.100/tcp/40001/p2p/12D3KooW{'x' * 44}"
    History(database).describe_session({"peer_id": "12D3", "addresses": [address]})
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with LiveView() as view:
        view(Started(overview(database)))
    assert any(address in line for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(("followed", "told"), [([0, 5], True), (list(range(8)), False)])
def test_a_node_that_hears_a_part_of_its_swarm_says_so(database, followed, told):
    History(database).describe_session({"peer_id": "12D3", "shards": {"followed": followed, "all": 8}})
    screen = _Screen(Console(height=24))
    screen.take(Started(overview(database)))
    assert ("hears 2 of 8 shards" in shown(screen)) is told


LONG = "the generation server does not answer: " + 12 * "one word after another "


def busy(database):
    """A node with everything that the screen can show, and notices of both levels."""
    history = History(database)
    for step in range(1, 101):
        history.record(replace(REPORT, step=step))
    history.examine(100, HeldOut({"products": (Levels((1, 0)), Levels((1, 1)))}), at=0.0)
    peers = [f"12D3KooW{number:044}" for number in range(30)]
    history.describe_session(
        {
            "peer_id": f"12D3KooW{'x' * 44}",
            "page": "http://127.0.0.1:8080/",
            "connected": peers[:2],
            "addresses": [f"/ip4/192.0.2.1/tcp/{number}/p2p/12D3KooW{'x' * 44}" for number in range(5)],
            "standing": {"stopping": " after this round; a second Ctrl-C stops at once"},
            "notices": [{**NOTICE, "level": "attention", "text": LONG}, *6 * [NOTICE]],
            "waits": [{"what": "the next epoch", "until": NOTICE["at"]}],
        }
    )
    history.count({"accepted": 9, "length filter": 6, "false claim": 3})
    ledger = Ledger(database)
    for peer in peers:
        ledger.report(peer, Fact.VERIFIED_GROUP)
    return overview(database)


@pytest.mark.parametrize("width", [40, 140])
@pytest.mark.parametrize("height", [5, 16, 50])
def test_the_screen_fits_every_terminal_and_begins_with_what_needs_a_person(database, width, height):
    screen = _Screen(Console(width=width, height=height))
    screen.take(Started(busy(database)))
    screen.take(Phased("train"))
    lines = shown(screen, width=width).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).startswith("stopping after this round; a second Ctrl-C stops at once")
    assert LONG[:20] in " ".join(lines)
    if height >= 16:
        assert any("train" in line for line in lines)
        assert any("round" in line and "reward" in line and "external" in line for line in lines)


def test_a_contributor_with_many_tasks_leaves_room_for_its_notices(database):
    tasks = [TaskAnswers(f"task {number}", 9, 7, 72, 28) for number in range(40)]
    screen = _Screen(Console(width=80, height=24))
    screen.take(Started(replace(busy(database), answers=tasks)))
    lines = shown(screen, width=80).splitlines()
    assert len(lines) <= 24
    assert lines[0].startswith("stopping after this round")


def test_a_notice_that_needs_a_person_comes_before_newer_ones(database):
    screen = _Screen(Console(height=24))
    screen.take(Started(overview(database)))
    for level in ("info", "attention", "info"):
        screen.take(Noticed({**NOTICE, "level": level, "text": f"{level} "}))
    told = shown(screen)
    assert told.index("attention") < told.index("info")


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(database, capsys, monkeypatch, kind):
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(Terminal, "is_terminal", True)
    with LiveView() as view:
        view(Played(REPORT, overview(database)))
        assert "round 7: reward 0.250" in capsys.readouterr().out


@pytest.mark.parametrize(("key_is_new", "shares"), [(True, ["share"]), (False, [])])
async def test_a_round_tells_its_phases_in_order(manifest, database, key_is_new, shares, autojump_clock):
    policy = Oracle(manifest, random.Random(1), seconds=2.0)
    clock = TrioClock(10 * manifest.epoch_seconds)
    rng = random.Random(1)
    node = build_node(
        Config(external=4, eval_every=0),
        SwarmContext(manifest, clock, Identity(Ed25519PrivateKey.generate()), rng),
        counters=Counters(database, manifest, now=clock.now(), key_is_new=key_is_new, rng=rng),
        database=database,
        scorer=KnowingScorer(policy.answers),
        policy=policy,
        on_fatal=lambda _: None,
    )
    told, reports = [], []
    await run_node(node, publish, rounds=2, on_round=reports.append, on_phase=told.append)
    phases = ["generate", *shares, "verify", "train"]
    assert told == 2 * [each for phase in phases for each in (phase, None)]
    assert [list(report.seconds) for report in reports] == [phases, phases]
    assert reports[-1].strangers_share == STRANGERS_SHARE  # heard of none, so the share has not risen


async def publish(_topic, _message):
    """Nobody listens."""
