"""A row that holds something else than the node wrote there: one error that says what to do."""

import json

import pytest

from sapo_node.groups.book import Book, newest
from sapo_node.observability.history import History
from sapo_node.storage.database import StateError
from sapo_node.training.batch_log import BatchLog
from sapo_node.training.take_back import TakeBacks
from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError

STORED = {
    "step": 1, "objective": "positive-only", "rate_scale": 1.0, "restart": None, "examples": [[]],
    "groups": [{
        "id": "a/1/1/1", "source": "external", "member": {"number": 1, "peer": "a", "rejected": {}}, "weight": 1,
        "advantages": [1], "masked_spans": [[]], "stands_in": "", "examples": 0,
        "bounds": {"token": -1.0, "text": -2.0, "tokens": None},
    }],
}  # fmt: skip
OUTCOME = '{"weight": 1, "advantages": [1], "tokens": 1}'
ROWS = {
    "batches": (1, json.dumps(STORED), 0),
    "counted": (1, '{"": [1, 2, 0.5]}'),
    "taken_back": (1, 1, 1, "", "", 1, 1, 0.0, None, "", '[[1, "local/0"]]'),
    "groups": (
        *(1, "a", 1, 1, 1, "ab", "verified", "", None, 0.0, "d", "2*3?", "[1]", 1),
        *('[{"text": "6", "finish": "stop", "tokens": [7], "logprobs": [-1]}]', OUTCOME, 1, None, None),
    ),
    "curve": (1, 1, 1, 0.5, "{}", 0.5, 0.5, "{}"),
    "ledger": ("a", "healthy", 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0),
    "decisions": ("a", "command", "banned", 0.0, ""),
}
"""A row of each table whose values have a form."""
ODD = ("{", "7", "[7]", "[[1, 2]]", '{"a": 7}', '{"": [1, "2"]}', '[["6", 7]]')
FORMED = {
    "batches": ("batch",),
    "counted": ("peers",),
    "taken_back": ("accused",),
    "groups": ("completions", "levels", "outcome", "state"),
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
    newest(database, 100)
    History(database).points()
    Ledger(database)
    book = Book(database, manifest, rng=rng)
    book.offered()
    book.draw(Tier.STRANGER)


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


@pytest.mark.parametrize("changed", [{"levels": "[2]"}, {"levels": "[1, 1]"}, {"top": 0}])
def test_levels_that_the_group_cannot_have_are_one_error(database, manifest, rng, changed):
    put(database, "groups", **changed)
    with pytest.raises(StateError, match="damaged"):
        read_all(database, manifest, rng)


def test_a_message_that_does_not_decode_is_one_error(database, manifest, rng):
    database.execute("INSERT INTO arrived VALUES (x'00', 'a', 1, x'00', 1, '', 'stranger')")
    with pytest.raises(StateError, match="damaged"):
        read_all(database, manifest, rng)
