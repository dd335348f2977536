"""A state database with anything in it: it is read, or one error of ours says why not, and no code in it runs."""

import contextlib
import functools
import io
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

from harness import MANIFEST, Source, small_pages

from sapo_node.app.state import SCHEMA
from sapo_node.cli.tables import Screen
from sapo_node.cli.terminal import Terminal
from sapo_node.ingest.pending import PendingQueue
from sapo_node.observability import explain
from sapo_node.observability.curves.follow import Follower
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.dashboard.prometheus import exposition
from sapo_node.observability.history import History
from sapo_node.observability.overview import Overview, overview
from sapo_node.observability.stored import Evaluation, Round, SessionFacts
from sapo_node.rollouts.archive import archived
from sapo_node.sampling.buffer import Pool
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import BatchLog
from sapo_node.training.evaluation import HeldOut
from sapo_node.training.round import RoundReport
from sapo_node.training.take_back import TakeBacks
from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_protocol import LocalError
from swarm_parts import TRAINING

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
ROOT = Path(_TEMPORARY.name)
FILE = ROOT / "node.sqlite"
REPORT = RoundReport(3, 5, 1, 1_800_000_000.0, True, 0.25, 2, 4, 1, 1, 0.75, {"generate": 1.0}, TRAINING)
HELD_OUT = HeldOut(2, {"spell_backward": (1, 2)})
SESSION = SessionFacts(
    peer_id="me",
    genesis=0,
    epoch_seconds=600,
    addresses=("/ip4/127.0.0.1/tcp/1",),
    notices=({"at": 1.0, "level": "info", "text": "naïve"},) * 20,
)
TABLES = (
    *(
        "rounds",
        "curve",
        "exams",
        "alone",
        "counts",
        "session",
        "answers",
        "journal",
        "refusals",
        "health",
        "health_alarms",
    ),
    *("taken_back", "trained", "batches", "ledger", "evidence", "published", "counters"),
    *("pool", "archive", "decisions", "inbox", "counted", "offences"),
)
VALUES = (
    *("NULL", "-1", "9e999", "'{}'", "'[]'", "'{'", "'[[1,2]]'", "'\u202e'", "x'ff'", "CAST(x'ff' AS TEXT)"),
    *("9223372036854775807", "''", "'1'", "zeroblob(100)", """'{"step": {}}'""", "'%s'" % ("[" * 2_000)),
    *("'healthy'", "'stranger'", "7"),
)
STATEMENTS = (
    "CREATE TRIGGER t AFTER INSERT ON counts BEGIN DELETE FROM counters; END",
    "CREATE TRIGGER t2 BEFORE UPDATE ON counts BEGIN SELECT raise(IGNORE); END",
    "DROP TABLE session",
    "CREATE VIEW session AS WITH RECURSIVE n AS (SELECT 1 x UNION SELECT x + 1 FROM n) SELECT x FROM n",
    "DROP TABLE counts; CREATE TABLE counts (name TEXT, count AS (length(hex(zeroblob(100000)))))",
    "CREATE INDEX heavy ON counts (hex(zeroblob(100000)))",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "PRAGMA user_version = 99",
    "DROP TABLE rounds",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE counts (x)' WHERE name = 'counts'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 3",
)
FIGURES = tuple(
    (table, column, name)
    for table, column, kind in (
        ("rounds", "report", Round),
        ("exams", "result", Evaluation),
        ("alone", "result", Evaluation),
        ("session", "facts", SessionFacts),
    )
    for name in get_type_hints(kind)
)
"""What stored JSON objects hold."""
JSON_VALUES = (
    *("null", "true", "-1", "1.5", "1e308", '"x"', "[]", "{}", "[1]", '["x"]', '[["x"]]', '{"x": 1}', '{"x": "y"}'),
    *('[{"what": 1, "until": 1}]', '{"followed": [1.5], "all": 1}', '{"x": {"pass_at_1": 1}}', "[" * 900 + "]" * 900),
)


@functools.cache
def good() -> bytes:
    """A state with a session, rounds, counts and a journal, in one file of small pages."""
    path = ROOT / "good"
    small_pages(path)
    with closing(Database(path, SCHEMA)) as database:
        history = History(database)
        history.describe_session(SESSION)
        for step in range(1, 6):
            history.record(replace(REPORT, step=step))
        history.count({"accepted": 3, "réfusé": 4})
        history.examine(5, HELD_OUT, at=1_800_000_000.0)
        history.keep_alone(history.evaluations())
    return path.read_bytes()


def fuzz(data: bytes) -> None:
    source = Source(data)
    style, reader = divmod(source.below(3 * len(READERS)), len(READERS))
    write(style, source)
    try:
        with contextlib.suppress(LocalError):
            READERS[reader]()
    finally:
        for path in ROOT.glob("node.sqlite*"):
            path.unlink()


def restored() -> None:
    with closing(Database(FILE, (), read_only=True)) as database:
        database.check()
        History(database).session()


def shown_by_status() -> None:
    with closing(Database(FILE, (), read_only=True)) as database, database.decoding():
        view = overview(database)
    screen(view)


def shown_by_the_page() -> None:
    """The page is of a node that runs, so its database was checked at the start."""
    with closing(Database(FILE, SCHEMA)) as database:
        exposition(overview(database))
        facts = Facts(database, {})
        facts.groups(None)
        facts.state()
        facts.summary()
        facts.curve(1, 5)


def drawn() -> None:
    with closing(Database(FILE, (), read_only=True)) as database, database.decoding():
        Follower(database, round_=0, evaluation=0).new()


def explained() -> None:
    with closing(Database(FILE, (), read_only=True)) as database, database.decoding():
        explain.peer(database, "12D3KooW", MANIFEST)


def started() -> None:
    """What a node reads at its start and in its rounds."""
    with closing(Database(FILE, SCHEMA)) as database:
        History(database).count({"accepted": 1})
        History(database).points()
        list(BatchLog(database).batches())
        take_backs = TakeBacks(database)
        for taken in take_backs.unfinished():
            BatchLog(database).leave_out(take_backs.accused(taken), restored=0)
        Pool(database).groups()
        list(archived(database))
        Ledger(database).at(1)
        queue = PendingQueue(database, MANIFEST, rng=random.Random(0))
        for tier in Tier:
            queue.draw(tier)


READERS = (restored, shown_by_status, shown_by_the_page, drawn, explained, started)


def screen(view: Overview) -> None:
    """What `status` prints."""
    out = io.StringIO()
    Terminal(file=out, width=100, force_terminal=False).print(Screen(view))
    assert out.getvalue().replace("\n", "").isprintable()


def write(style: int, source: Source) -> None:
    """A file of bytes as they are, one with bytes changed, or one on which statements ran."""
    if style == 0:
        FILE.write_bytes(source.rest())
        return
    if style == 1:
        changed = bytearray(good())
        while source:
            changed[source.number(2) % len(changed)] ^= source.number()
        FILE.write_bytes(changed)
        return
    FILE.write_bytes(good())
    with closing(sqlite3.connect(FILE)) as connection:
        for _ in range(1 + source.below(6)):
            with contextlib.suppress(sqlite3.Error, sqlite3.Warning):
                connection.executescript(_statement(connection, source))
        with contextlib.suppress(sqlite3.Error):
            connection.commit()


def _statement(connection: sqlite3.Connection, source: Source) -> str:
    choice = source.below(4)
    if choice == 0:
        return STATEMENTS[source.below(len(STATEMENTS))]
    if choice == 3:
        table, column, name = FIGURES[source.below(len(FIGURES))]
        value = JSON_VALUES[source.below(len(JSON_VALUES))]
        return f"UPDATE {table} SET {column} = json_set({column}, '$.{name}', json('{value}'))"
    table = TABLES[source.below(len(TABLES))]
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = [VALUES[source.below(len(VALUES))] for _ in columns]
    if choice == 1 or not columns:
        return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join(values)})"
    column = source.below(len(columns))
    return f"UPDATE {table} SET {columns[column]} = {values[column]}"


def seeds() -> Iterator[bytes]:
    yield b"\0" + good()
    for reader, _ in enumerate(READERS):
        yield bytes([len(READERS) + reader])
        written = 2 * len(READERS) + reader
        for number in range(len(STATEMENTS)):
            yield bytes([written, 1, 0, number, 0, number + 1])
        for number, _ in enumerate(TABLES):
            yield bytes([written, 0, 1, number, 1, *[3] * 12])
            yield bytes([written, 0, 2, number, *[3] * 12, 1])
        for number, _ in enumerate(FIGURES):
            yield bytes([written, 0, 3, number, 5])
