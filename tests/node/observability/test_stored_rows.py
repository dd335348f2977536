"""A restored state whose rounds, evaluations or session hold something else than a node wrote: one error, and whoever
looks at the node is told what to do.
"""

import io
import json
from dataclasses import replace
from typing import get_type_hints

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.cli.tables import Screen, decision_table
from sapo_node.cli.terminal import Terminal
from sapo_node.groups.levels import Levels
from sapo_node.observability.curves import Follower
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.dashboard.prometheus import exposition
from sapo_node.observability.history import History
from sapo_node.observability.overview import overview
from sapo_node.observability.stored import METRICS, Round, metrics
from sapo_node.storage.database import Database, StateError
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.round import RoundReport
from swarm_parts import TRAINING

REPORT = RoundReport(3, 5, 1, 1_800_000_000.0, True, 0.25, 0.25, 2, 4, 1, 1, 0.75, {"generate": 1.0}, TRAINING)
SESSION = {
    "started": 1_800_000_000.0,
    "stopped": 1_800_000_100.0,
    "peer_id": "12D3KooWme",
    "swarm": "starter",
    "network_id": "00" * 32,
    "genesis": 1_700_000_000,
    "epoch_seconds": 600,
    "page": "http://127.0.0.1:1/",
    "addresses": ["/ip4/127.0.0.1/tcp/1"],
    "connected": ["12D3KooWother"],
    "waiting": 3,
    "waits": [{"what": "the next epoch", "until": 1_800_000_200}],
    "role": "trains",
    "takes_none": False,
    "alone_since": 1_800_000_000.0,
    "standing": {"server": "it does not answer"},
    "failure": "the disk is full",
    "shards": {"followed": [0, 1], "all": 4},
    "notices": [{"at": 1_800_000_050.0, "level": "info", "text": "a notice"}],
}
ODD = ("x", 1.5, None, [], {}, ["x", 1.5], {"x": "y"}, [{"what": 1}], float("nan"))
COLUMNS = {"rounds": "report", "exams": "result", "session": "facts"}


@pytest.fixture
def kept(database):
    """A state with a round, an evaluation, and a session."""
    history = History(database)
    history.record(replace(REPORT, filtered={"length": 2}))
    history.examine(1, HeldOut({"spell_backward": (Levels((1, 0)), Levels((1, 1)))}), at=1_800_000_050.0)
    history.describe_session(SESSION)
    return database


def look(database):
    """All that shows these rows: `status`, `status --json`, `peers`, `/metrics`, the page, and the curves."""
    view = overview(database)
    terminal = Terminal(file=io.StringIO(), width=100, force_terminal=False)
    terminal.print(Screen(view))
    terminal.print(decision_table(view, width=100))
    json.dumps(view.as_dict())
    exposition(view)
    facts = Facts(database, {})
    facts.state()
    facts.curve(1, 5)
    Follower(database, round_=0, evaluation=0).new()


def test_what_a_node_wrote_is_shown(kept):
    look(kept)


@pytest.mark.parametrize("table", COLUMNS)
def test_a_figure_of_another_type_is_one_error(kept, table):
    column = COLUMNS[table]
    [good] = kept.documents(f"SELECT {column} FROM {table}")
    for name in good:
        refused = 0
        for value in ODD:
            kept.execute(f"UPDATE {table} SET {column} = ?", json.dumps({**good, name: value}))
            try:
                look(kept)
            except StateError:
                refused += 1
        assert refused >= 5, name
    kept.execute(f"UPDATE {table} SET {column} = ?", json.dumps(good))
    look(kept)


@pytest.mark.parametrize("table", ["rounds", "exams"])
def test_a_row_without_a_figure_that_every_version_wrote_is_one_error(kept, table):
    kept.execute(f"UPDATE {table} SET {COLUMNS[table]} = '{{}}'")
    with pytest.raises(StateError, match=r"damaged .*missing required field.*restore it from a backup"):
        look(kept)


def test_every_metric_of_a_round_has_a_type():
    assert list(get_type_hints(Round)) == list(METRICS)


def test_a_round_is_read_as_it_was_written():
    database = Database(None, SCHEMA)
    History(database).record(REPORT)
    assert History(database).rounds(1) == [metrics(REPORT)]
