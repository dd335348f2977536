"""A restored state in which a row holds something else than the node wrote there: one error that says what to do."""

import json
import sqlite3
from contextlib import closing

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.ingest.pending import PendingQueue
from sapo_node.observability.history import History
from sapo_node.rollouts.archive import archived
from sapo_node.sampling.alarm import RewardWatch
from sapo_node.sampling.buffer import Pool
from sapo_node.sampling.exposure import Exposure
from sapo_node.sampling.filters.length import LengthFilter
from sapo_node.sampling.filters.min_token_prob import MinTokenProbFilter
from sapo_node.sampling.local_weight import LocalWeight
from sapo_node.sampling.memory import Memory
from sapo_node.sampling.mix import Auto
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import MAX_VALUE_BYTES, Database, StateError
from sapo_node.training.batch_log import BatchLog
from sapo_node.training.health import Health
from sapo_node.training.take_back import TakeBacks
from sapo_node.training.trainer import Trainer
from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError
from swarm_parts import Oracle

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


NUMBERS = ("1e308", "-1e308", "-Infinity", "NaN", "1" + "0" * 4_000, "-1", "true")
"""JSON of numbers that no node stores in place of a share, a count or a log-probability."""
GROUP = {
    "source": "local", "prompt": "2*3?", "weight": 1, "advantages": [1], "id": "local/0", "rewards": [True],
    "completions": [{"text": "6", "finish": "stop", "tokens": [7], "logprobs": [-1], "silent": [], "end": None}],
}  # fmt: skip
STORED_NUMBERS = {
    "weight": ("batches", '"weight": 1'),
    "advantage": ("batches", '"advantages": [1'),
    "token": ("batches", '"tokens": [7'),
    "log-probability": ("batches", '"logprobs": [-1'),
    "step": ("batches", '{"step": 1'),
}
OUT_OF_RANGE = {
    "a fall from infinity": "INSERT INTO trained VALUES ('a', 1, 1, 1, -9e999)",
    "a time beyond all": "INSERT INTO fetched VALUES ('a', 1, 1e308)",
    "an advantage near the largest": "INSERT INTO trained VALUES ('a', 1, 1, 1, 1e308)",
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


@pytest.mark.parametrize(("table", "place"), STORED_NUMBERS.values(), ids=STORED_NUMBERS)
def test_a_number_out_of_its_range_is_one_error(database, manifest, rng, table, place):
    stored = json.dumps({"step": 1, "groups": [GROUP], "objective": "positive-only"})
    put(database, table, request=stored, peers='{"local/0": ""}')
    read_all(database, manifest, rng)
    for number in NUMBERS:
        key, _, shown = place.rpartition(" ")
        value = shown.replace(shown.lstrip("["), number)
        if f"{key} {value}" in stored or (number == "-1" and "advantages" in place):
            continue
        put(database, table, request=stored.replace(place, f"{key} {value}"), peers='{"local/0": ""}')
        with pytest.raises(LocalError, match=r"damaged.*restore it from a backup"):
            read_all(database, manifest, rng)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("part", ["pass rates", "ratio", "reward", "strangers", "weight", "length", "min-token-prob"])
def test_what_was_learnt_with_a_number_out_of_its_range_is_forgotten_with_a_warning(database, part, number, caplog):
    pass_rates = PassRates()
    parts = {
        "pass rates": (pass_rates, f'{{"rates": {{"a": {{"total": {number}, "weight": 1}}}}}}'),
        "ratio": (
            Auto(4, pass_rates),
            f'{{"own": {{}}, "others": {{}}, "supply": 1, "external": 1, "bound": {number}}}',
        ),
        "reward": (RewardWatch(pass_rates), f'{{"total": {number}}}'),
        "strangers": (Exposure(), f'{{"share": {number}}}'),
        "weight": (LocalWeight(pass_rates, by_pass_rate=True), f'{{"weights": [{number}]}}'),
        "length": (LengthFilter(), f'{{"lengths": {{"a": [{number}]}}}}'),
        "min-token-prob": (MinTokenProbFilter(), f'{{"own": {{"a": [{{"token": {number}, "text": -1}}]}}}}'),
    }
    known, state = parts[part]
    before = known.state_dict()
    database.execute("INSERT INTO sampling_state VALUES (?, 1, ?)", part, state)
    if (part, number) == ("min-token-prob", "-1"):
        return  # it is a log-probability
    Memory(database, {part: known})
    assert "is forgotten" in caplog.text
    assert known.state_dict() == before


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("figure", ["rate_scale", "most_entropy", "most_informative", "calm"])
def test_a_watch_over_numbers_out_of_range_is_forgotten_with_a_warning(database, figure, number, caplog):
    database.execute("INSERT INTO health VALUES (1, ?)", f'{{"{figure}": {number}}}')
    assert Health(database, lambda: 0.0).rate_scale == 1
    assert "is forgotten" in caplog.text


@pytest.mark.parametrize("statement", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_a_number_that_no_node_stores_in_a_column_is_one_error_at_the_start(tmp_path, statement):
    Database(tmp_path / "db", SCHEMA).close()
    with closing(sqlite3.connect(tmp_path / "db")) as foreign:
        foreign.execute(statement)
        foreign.commit()
    with pytest.raises(StateError, match=r"damaged.*out of range.*backup"):
        Database(tmp_path / "db", SCHEMA)


@pytest.mark.parametrize("number", [1e308, -1e308, float("inf"), -float("inf"), float("nan"), 10**30])
def test_a_number_that_could_not_be_read_again_is_not_stored(database, number):
    with pytest.raises(StateError):
        database.execute("INSERT INTO trained VALUES ('a', 1, 1, 1, ?)", number)


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
