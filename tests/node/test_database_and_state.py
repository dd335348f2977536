"""State on disk: one process, whole transactions, and a clear word when the file is damaged."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sapo_node.database import SCHEMA_VERSION, Database, StateError
from sapo_node.state import SCHEMA, StateFolder, locked, read_database, state_folder
from sapo_protocol import LocalError

TABLE = ("CREATE TABLE IF NOT EXISTS t (x INTEGER PRIMARY KEY);",)


def test_a_transaction_that_fails_leaves_nothing_behind(database):
    with pytest.raises(ZeroDivisionError), database.transaction():
        database.execute("INSERT INTO checkpoints VALUES (1)")
        raise ZeroDivisionError
    assert database.rows("SELECT * FROM checkpoints") == []


def test_what_was_committed_is_there_after_reopening(tmp_path):
    first = Database(tmp_path / "db", TABLE)
    with first.transaction(durable=True):
        first.execute("INSERT INTO t VALUES (7)")
    first.close()
    assert Database(tmp_path / "db", TABLE).rows("SELECT x FROM t") == [(7,)]


def test_a_process_killed_in_mid_transaction_loses_only_that_transaction(tmp_path):
    script = (
        "import os, sys, signal; from pathlib import Path; from sapo_node.database import Database\n"
        f"db = Database(Path({str(tmp_path / 'db')!r}), {TABLE!r})\n"
        "with db.transaction(): db.execute('INSERT INTO t VALUES (1)')\n"
        "with db.transaction():\n"
        "    db.execute('INSERT INTO t VALUES (2)')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False
    )
    assert Database(tmp_path / "db", TABLE).rows("SELECT x FROM t") == [(1,)]


def test_a_damaged_file_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4_096)
    with pytest.raises(StateError, match=r"damaged.*backup"):
        Database(path, TABLE)


def test_a_file_of_another_schema_is_refused(tmp_path):
    first = Database(tmp_path / "db", TABLE)
    first.execute("PRAGMA user_version = 99")
    first.close()
    with pytest.raises(StateError, match="another version"):
        Database(tmp_path / "db", TABLE)


def test_a_full_disk_is_a_state_error_and_what_was_committed_stays(tmp_path):
    database = Database(tmp_path / "db", TABLE)
    database.execute("INSERT INTO t VALUES (1)")
    pages = database.rows("PRAGMA page_count")[0][0]
    database.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to meet SQLITE_FULL
    with pytest.raises(StateError, match="full"), database.transaction():
        for x in range(2, 100_000):
            database.execute("INSERT INTO t VALUES (?)", x)
    assert database.rows("SELECT count(*) FROM t") == [(1,)]


def test_two_nodes_on_one_state_are_refused(tmp_path):
    folder = StateFolder(tmp_path / "state")
    with locked(folder), pytest.raises(LocalError, match="another node is running"), locked(folder):
        pass


def test_the_lock_ends_with_its_holder(tmp_path):
    folder = StateFolder(tmp_path / "state")
    with locked(folder):
        pass
    with locked(folder):
        pass


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match="--state"), locked(StateFolder(tmp_path / "file" / "x")):
        pass


def test_two_swarms_of_one_name_have_two_folders(manifest, tmp_path):
    other = manifest.restarted(name=manifest.name, genesis=1, epoch_seconds=600, max_rounds=600)
    assert state_folder(tmp_path, manifest, "p") != state_folder(tmp_path, other, "p")


def test_reading_where_no_node_ever_ran_says_so(tmp_path):
    with pytest.raises(LocalError, match="sapo-node start"):
        read_database(StateFolder(tmp_path))


def test_a_reader_sees_a_running_nodes_database_and_cannot_write_it(tmp_path):
    folder = StateFolder(tmp_path)
    writer = Database(folder.database, SCHEMA)
    writer.execute("INSERT INTO checkpoints VALUES (5)")
    reader = read_database(folder)
    assert reader.rows("SELECT step FROM checkpoints") == [(5,)]
    with pytest.raises(StateError):
        reader.execute("INSERT INTO checkpoints VALUES (6)")


def test_a_state_without_the_newest_tables_says_to_start_the_node_once(tmp_path):
    folder = StateFolder(tmp_path)
    Database(folder.database, SCHEMA[:-1]).close()  # as a version left it that kept no journal
    with pytest.raises(StateError, match="start the node once"):
        read_database(folder).rows("SELECT * FROM journal")


def test_starting_adds_what_an_older_state_lacks_and_keeps_what_it_has(tmp_path):
    folder = StateFolder(tmp_path)
    older = Database(folder.database, SCHEMA[:-1])
    older.execute("INSERT INTO checkpoints VALUES (7)")
    older.close()
    Database(folder.database, SCHEMA).close()
    reader = read_database(folder)
    assert reader.rows("SELECT * FROM journal") == []
    assert reader.rows("SELECT * FROM checkpoints") == [(7,)]


def columns_of(database):
    tables = database.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {table: database.rows(f"PRAGMA table_info({table})") for (table,) in tables}


@pytest.mark.parametrize("earlier", sorted(Path(__file__).parent.glob("state-*.sql")), ids=lambda file: file.stem)
def test_a_state_that_an_earlier_version_wrote_has_the_tables_of_this_one_and_keeps_its_rows(tmp_path, earlier):
    with sqlite3.connect(tmp_path / "db") as written:
        written.executescript(earlier.read_text())
        written.execute("INSERT INTO counters VALUES (7, 3)")
    database = Database(tmp_path / "db", SCHEMA)
    assert columns_of(database) == columns_of(Database(None, SCHEMA)), (
        "tables have changed: raise SCHEMA_VERSION, bring states of the version before to it, and add a state-N.sql"
    )
    assert database.rows("SELECT * FROM counters") == [(7, 3)]


def test_there_is_a_state_of_this_schema_to_try():
    assert (Path(__file__).parent / f"state-{SCHEMA_VERSION}.sql").exists()
