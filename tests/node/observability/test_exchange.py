"""What a node gained from others and gave them, and what it waits for, as it shows them."""

import json
import tracemalloc
from dataclasses import replace

import pytest
from rich.console import Console

from books import entered
from sapo_node.cli.tables import Screen, countdown, waits_lines
from sapo_node.groups.messages import GroupReport, Sampled, TrainGroup, TrainReport, TrainRequest
from sapo_node.groups.record import LOCAL
from sapo_node.observability.history import MAX_FETCHERS, History
from sapo_node.observability.overview import Exchange, overview
from sapo_node.training.batch_log import BatchLog

PEERS = [f"12D3KooW{name}" for name in ("first", "second", "third", "fourth")]


def trained(source, weight, advantages, name):
    completions = tuple(Sampled("so", "stop", tokens=(1,) if source == "local" else None) for _ in advantages)
    return TrainGroup(source, "2+2?", weight, advantages, completions, name)


def count(database, step, *groups, reports=None):
    """Have a step count groups of (peer, weight, advantages)."""
    named = {f"{number}": group for number, group in enumerate(groups)}
    request = TrainRequest(
        step,
        tuple(
            trained("external" if peer else "local", weight, advantages, name)
            for name, (peer, weight, advantages) in named.items()
        ),
    )
    log = BatchLog(database)
    log.store(batch := entered(database, request, {name: peer for name, (peer, _, _) in named.items()}))
    log.count(batch, TrainReport(step, {name: GroupReport(tokens=5) for name in named} | (reports or {}), 1e-4))
    return log


def test_the_share_from_others_is_of_positive_advantage_times_weight(database):
    count(database, 1, (LOCAL, 1.0, (2.0, -9.0)), (PEERS[0], 0.5, (2.0, 2.0, -1.0)))
    assert overview(database).exchange.from_others == 0.5


def test_the_three_who_taught_most_are_named_with_their_shares(database):
    count(database, 1, (LOCAL, 1.0, (4.0,)), *((peer, 1.0, (float(n),)) for n, peer in enumerate(PEERS)))
    assert overview(database).exchange.teachers == [(PEERS[3], 0.3), (PEERS[2], 0.2), (PEERS[1], 0.1)]


def test_of_twenty_thousand_keys_that_were_trained_on_a_node_reads_only_those_that_it_names(database):
    """It gathers this after each round, and for each look at the page or at the metrics."""
    with database.transaction():
        for number in range(20_000):
            database.execute("INSERT INTO trained VALUES (?, 1, 40, 1, 0.1)", f"12D3KooW{number:044d}")
    tracemalloc.start()
    exchange = overview(database).exchange
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20
    assert (exchange.from_others, len(exchange.teachers)) == (1.0, 3)


def test_a_node_alone_gained_nothing_from_others(database):
    count(database, 1, (LOCAL, 1.0, (4.0,)))
    assert overview(database).exchange == Exchange(0.0, [], 0, 0)


REPORTS = {
    "nothing of it was trained on": (GroupReport(tokens=0), 0.0),
    "a filter rejected one of two completions": (GroupReport(tokens=5, rejected={0: "equation"}), 1 / 3),
    "one of two completions is too long": (GroupReport(tokens=5, untrained=(0,)), 1 / 3),
}


@pytest.mark.parametrize("case", REPORTS)
def test_only_completions_that_were_trained_on_count(database, case):
    report, share = REPORTS[case]
    count(database, 1, (LOCAL, 1.0, (2.0,)), (PEERS[0], 1.0, (1.0, 1.0)), reports={"1": report})
    assert overview(database).exchange.from_others == pytest.approx(share, abs=1e-4)


def test_a_replayed_step_counts_once_and_a_step_taken_back_not_at_all(database):
    count(database, 1, (LOCAL, 1.0, (1.0,)))
    log = count(database, 2, (PEERS[0], 1.0, (1.0,)))
    count(database, 2, (PEERS[0], 1.0, (1.0,)))
    assert overview(database).exchange.from_others == 0.5
    log.leave_out({(2, "0"): PEERS[0]}, restored=1)
    assert overview(database).exchange.from_others == 0.0


def test_those_who_fetched_are_counted_once_each_over_restarts(database):
    for at in (1.0, 2.0):
        History(database).fetched({"a": 2, "b": 1}, at=at)
    assert History(database).fetchers() == (2, 6)


def test_a_thousand_keys_that_fetch_push_out_those_who_fetched_longest_ago(database):
    History(database).fetched({"first": 1}, at=1.0)
    History(database).fetched({f"key {number}": 1 for number in range(MAX_FETCHERS)}, at=2.0)
    assert History(database).fetchers() == (MAX_FETCHERS, MAX_FETCHERS)
    assert database.row("SELECT 1 FROM fetched WHERE peer = 'first'") is None


def shown(view):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(Screen(view, height=24))
    return capture.get()


def test_the_terminal_says_what_was_gained_from_whom_and_who_fetched(database):
    count(database, 1, (LOCAL, 1.0, (4.0,)), *((peer, 1.0, (float(n),)) for n, peer in enumerate(PEERS)))
    History(database).fetched({"a": 3}, at=1.0)
    told = shown(overview(database))
    assert "gained 60% of positive advantage: …oWfourth 30%" in told
    assert "helped 1 peer fetched 3 rollouts" in told


def test_json_has_the_same(database):
    count(database, 1, (LOCAL, 1.0, (1.0,)), (PEERS[0], 1.0, (1.0,)))
    exchange = json.loads(json.dumps(overview(database).as_dict()))["exchange"]
    assert exchange == {"from_others": 0.5, "teachers": [[PEERS[0], 0.5]], "fetchers": 0, "fetched": 0}


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0:00"), (59.6, "1:00"), (272, "4:32"), (3_600, "1 h 00 min"), (7_500, "2 h 05 min")]
)
def test_a_countdown_ends_at_zero(seconds, text):
    assert countdown(seconds) == text


def test_what_a_node_waits_for_is_shown_with_a_countdown(database):
    view = replace(overview(database), session={"waits": [{"what": "the next epoch", "until": 1_060}]})
    [line] = waits_lines(view, 1_000.0)
    assert line.plain == "waits 1:00 for the next epoch"
