"""A row that holds something else than the node wrote there: one error that says what to do."""

import pytest

from sapo_node.ingest.pending import PendingQueue
from sapo_node.observability.history import History
from sapo_node.rollouts.archive import archived
from sapo_node.sampling.buffer import Pool
from sapo_node.storage.database import StateError
from sapo_node.training.batch_log import BatchLog
from sapo_node.training.take_back import TakeBacks
from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError

ROWS = {
    "batches": (1, '{"step": 1, "groups": [], "objective": "positive-only"}', "{}", 0),
    "counted": (1, '{"": [1, 2, 0.5]}'),
    "taken_back": (1, 1, 1, "", "", 1, 1, 0.0, None, "", '[[1, "local/0"]]'),
    "pool": ("a", 1, 1, 1, "d", "2*3?", '[["6", "stop"]]', "[true]"),
    "archive": (1, "a", 1, 1, 1, "d", "2*3?", "[true]", b"", b"", 0.0),
    "curve": (1, 1, 1, 0.5, "{}", 0.5, 0.5, "{}"),
    "ledger": ("a", "healthy", 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0),
    "decisions": ("a", "command", "banned", 0.0, ""),
}
"""A row of each table whose values have a form."""
ODD = ("{", "7", "[7]", "[[1, 2]]", '{"a": 7}', '{"": [1, "2"]}', '[["6", 7]]')
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
    assert refused


def test_a_message_that_does_not_decode_is_one_error(database, manifest, rng):
    database.execute("INSERT INTO inbox VALUES (x'00', 'a', 1, x'00', '', 'stranger')")
    with pytest.raises(StateError, match="damaged"):
        read_all(database, manifest, rng)
