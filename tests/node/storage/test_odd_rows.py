"""A restored state in which a row holds something else than the node wrote there: one error that says what to do."""

import sqlite3
from contextlib import closing

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.ingest.pending import PendingQueue
from sapo_node.observability.history import History
from sapo_node.rollouts.archive import archived
from sapo_node.sampling.buffer import Pool
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import MAX_VALUE_BYTES, Database, StateError
from sapo_node.training.batch_log import BatchLog
from sapo_node.training.take_back import TakeBacks
from sapo_node.training.trainer import Trainer
from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError
from swarm_parts import Oracle

ROWS = {
    "batches": (1, '{"step": 1, "groups": [], "objective": "positive-only"}', "{}", 0),
    "counted": (1, '{"": [1, 2]}'),
    "taken_back": (1, 1, 1, "", "", 1, 1, 0.0, None, "", '[[1, "local/0"]]'),
    "pool": ("a", 1, 1, 1, "d", "2*3?", '[["6", "stop"]]', "[true]"),
    "archive": (1, "a", 1, 1, 1, "d", "2*3?", "[true]", b"", b"", 0.0),
    "curve": (1, 1, 1, 0.5, "{}", 0.5, 0.5, "{}"),
    "ledger": ("a", "healthy", 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0),
    "decisions": ("a", "command", "banned", 0.0, ""),
}
"""A row of each table whose values have a form."""
ODD = ("{", "[", "7", "[7]", "[[1, 2]]", '{"a": 7}', '{"": [1, "2"]}', '[["6", 7]]', "[" * 3_000, "9" * 5_000)
FORMED = {
    "batches": ("request", "peers"),
    "counted": ("peers",),
    "taken_back": ("accused",),
    "archive": ("rewards",),
    "pool": ("completions", "rewards"),
    "curve": ("seconds", "filtered"),
    "ledger": ("standing",),
    "decisions": ("standing",),
}
"""The columns that hold JSON or a state."""
WRONG_TYPES = {
    "bytes as a number": "INSERT INTO counters VALUES (1, x'ff')",
    "text as a number": "INSERT INTO counts VALUES ('accepted', 'many')",
    "a fraction as a count": "INSERT INTO counts VALUES ('accepted', 1.5)",
    "text as bytes": "INSERT INTO published VALUES ('a', 1, 1, x'00')",
    "bytes as text": "INSERT INTO ledger VALUES (x'61', 'healthy', 0, 0, 0, 0, 0, 0, 0, 0)",
    "a number as bytes": "INSERT INTO evidence VALUES ('a', 7)",
    "text as a time": "INSERT INTO listening_period VALUES ('soon', 0.0, 0, '')",
}


def put(database, table, **changed):
    names = [name for _, name, *_ in database.rows(f"PRAGMA table_info({table})")]
    row = dict(zip(names, ROWS[table], strict=True)) | changed
    database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", *row.values())


def read_all(database, manifest, rng):
    """Read what a node reads at its start and in its rounds."""
    list(BatchLog(database).batches())
    for taken in TakeBacks(database).unfinished():
        BatchLog(database).leave_out(TakeBacks(database).accused(taken), restored=0)
    Pool(database).groups()
    list(archived(database))
    History(database).points()
    Ledger(database)
    PendingQueue(database, manifest, rng=rng).draw(Tier.STRANGER)


@pytest.mark.parametrize(("table", "column"), [(table, each) for table, columns in FORMED.items() for each in columns])
def test_a_value_of_another_form_is_one_error(database, manifest, rng, table, column):
    for each in ROWS:
        put(database, each)
    read_all(database, manifest, rng)
    refused = 0
    for value in ODD:
        put(database, table, **{column: value})
        try:
            read_all(database, manifest, rng)
        except LocalError:
            refused += 1
    assert refused >= 4


def test_a_message_that_does_not_decode_is_one_error(database, manifest, rng):
    database.execute("INSERT INTO inbox VALUES (x'00', 'a', 1, x'00', '', 'stranger')")
    with pytest.raises(StateError, match="damaged"):
        read_all(database, manifest, rng)


@pytest.mark.parametrize("statement", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_value_of_another_type_than_its_column_is_one_error_at_the_start(tmp_path, statement):
    """SQLite stores a value of any type in any column."""
    Database(tmp_path / "db", SCHEMA).close()
    with closing(sqlite3.connect(tmp_path / "db")) as foreign:
        foreign.execute(statement)
        foreign.commit()
    with pytest.raises(StateError, match=r"damaged.*wrong type.*backup"):
        Database(tmp_path / "db", SCHEMA)


async def test_a_step_that_no_node_reached_is_one_error(database, manifest, rng):
    put(database, "batches", step=2**62)
    policy = Oracle(manifest, rng)
    trainer = Trainer(database, Pool(database), policy, objective="positive-only", checkpoint_every=10)
    with pytest.raises(StateError, match="damaged"):
        await trainer.recover()
    assert policy.requests == []


def test_a_counter_below_zero_is_one_error(database, manifest, rng):
    database.execute("INSERT INTO counters VALUES (0, -1)")
    counters = Counters(database, manifest, now=0.0, key_is_new=True, rng=rng)
    with pytest.raises(StateError, match="damaged"):
        counters.reserve(0.0)


def test_a_text_that_would_fill_the_memory_is_one_error(tmp_path):
    with closing(Database(tmp_path / "node.sqlite", SCHEMA)):
        pass
    with closing(sqlite3.connect(tmp_path / "node.sqlite")) as connection:
        text = '{"a": [' + "[]," * (MAX_VALUE_BYTES // 3) + "[]]}"
        connection.execute("INSERT INTO session VALUES (1, ?)", (text,))
        connection.commit()
    with (
        closing(Database(tmp_path / "node.sqlite", (), read_only=True)) as database,
        pytest.raises(StateError, match="damaged"),
    ):
        History(database).session()
