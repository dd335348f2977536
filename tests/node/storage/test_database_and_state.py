"""State on disk: one process, whole transactions, and a clear word when the file is damaged."""

import json
import os
import random
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from sapo_node.app.state import (
    SCHEMA,
    StateFolder,
    is_running,
    locked,
    read_database,
    reading,
    require_usable,
    state_folder,
)
from sapo_node.observability.history import History
from sapo_node.observability.overview import overview
from sapo_node.storage.database import SCHEMA_VERSION, Database, StateError
from sapo_node.storage.location import StateLocation
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
        "import os, sys, signal; from pathlib import Path; from sapo_node.storage.database import Database\n"
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


def no_file(path):
    del path


def folder(path):
    path.mkdir()


def pipe(path):
    os.mkfifo(path)


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("no database at all\n" * 100)


def other_program(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def other_version(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")


NO_STATE = {
    no_file: "sapo-node start",
    folder: "not a file.*choose another --state",
    pipe: "not a file.*choose another --state",
    empty: "not a database of sapo-node",
    text: "damaged.*backup",
    other_program: "not a database of sapo-node",
    other_version: "another version",
}


@pytest.mark.parametrize(("make", "advice"), NO_STATE.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_reading_what_is_no_state_is_one_error_that_says_what_to_do(tmp_path, make, advice):
    make(tmp_path / "node.sqlite")
    with pytest.raises(StateError, match=advice):
        read_database(StateFolder(tmp_path))


@pytest.mark.parametrize("make", [folder, pipe, text, other_program, other_version])
def test_a_node_does_not_start_on_what_is_no_state_and_leaves_it_as_it_is(tmp_path, make):
    path = tmp_path / "node.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StateError):
        Database(path, SCHEMA)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_state_in_a_folder_of_any_name_is_read(tmp_path):
    odd = StateFolder(tmp_path / "a?b#c%20d")
    odd.path.mkdir()
    Database(odd.database, SCHEMA).close()
    assert read_database(odd).rows("SELECT * FROM counters") == []


def small_state(path):
    """A database with a session, rounds and text in small pages, all of it in one file; returns the file's bytes."""
    database = Database(path, ("PRAGMA page_size = 512; VACUUM;", *SCHEMA))
    history = History(database)
    history.describe_session({"peer_id": "me", "notices": ({"at": 1.0, "level": "info", "text": "naïve"},) * 20})
    round_ = {"epoch": 0, "counter": 0, "reward": 0.5, "local": 4, "informative": 2, "external": 1, "seconds": {}}
    for step in range(1, 20):
        report = json.dumps({"step": step, **round_, "é": "x" * 100})
        database.execute("INSERT INTO rounds VALUES (?, 0.5, ?)", step, report)
    history.count({"accepted": 3, "réfusé": 4})
    database.close()
    return path.read_bytes()


def test_a_database_that_is_overwritten_in_its_middle_fails_its_check(tmp_path):
    data = bytearray(small_state(tmp_path / "db"))
    Database(tmp_path / "db", (), read_only=True).check()
    quarter = len(data) // 4
    data[quarter : 3 * quarter] = bytes(2 * quarter)
    (tmp_path / "db").write_bytes(data)
    with pytest.raises(StateError, match=r"damaged.*restore it from a backup"):
        Database(tmp_path / "db", (), read_only=True).check()


def test_a_value_of_another_type_than_its_column_is_not_stored(database):
    with pytest.raises(StateError, match="cannot store TEXT value in INTEGER column"):
        database.execute("INSERT INTO counts VALUES ('accepted', 'many')")


def test_every_table_of_a_state_is_strict(database):
    tables = database.rows("PRAGMA table_list")
    assert {name for _, name, *_, strict in tables if not strict} == {"sqlite_schema", "sqlite_temp_schema"}


@pytest.mark.parametrize("report", ["{}", '{"step": 1}'])
def test_a_row_that_lacks_what_it_should_hold_is_a_damaged_state(tmp_path, report):
    with closing(Database(tmp_path / "node.sqlite", SCHEMA)) as database:
        database.execute("INSERT INTO rounds VALUES (1, 0.5, ?)", report)
        with pytest.raises(StateError, match=r"damaged.*backup"):
            overview(database)
    with pytest.raises(StateError, match=r"damaged.*backup"), reading(StateFolder(tmp_path)) as database:
        History(database).rounds(1)


def look_at(path):
    """Everything that a reader of a state looks at."""
    with closing(Database(path, (), read_only=True)) as database:
        database.check()
        history = History(database)
        history.session(), history.rounds(100), history.rounds_after(0), history.evaluations(), history.counts()


@pytest.mark.slow
def test_a_thousand_damaged_databases_each_load_or_are_one_error(memory_folder):
    data, rng, refused = small_state(memory_folder / "db"), random.Random(3), 0
    for number in range(1_000):
        damaged = bytearray(data)
        place = rng.randrange(len(data))
        piece = rng.randbytes(rng.choice((1, 2, 8, 64)))
        damaged[place : place + len(piece)] = piece
        path = memory_folder / "damaged"
        path.write_bytes(damaged[: rng.randrange(len(data))] if number % 10 == 0 else damaged)
        try:
            look_at(path)
            Database(path, SCHEMA).close()
        except StateError:
            refused += 1
        for extra in memory_folder.glob("damaged*"):
            extra.unlink()
    assert 100 < refused < 1_000


@pytest.mark.parametrize("stored", ["{", "[]", "1" * 5_000, "[" * 3_000])
def test_a_round_that_is_no_json_object_is_a_damaged_state(database, stored):
    database.execute("INSERT INTO rounds VALUES (1, 0, ?)", stored)
    with pytest.raises(StateError, match="damaged"):
        History(database).rounds(10)


def test_text_that_is_not_utf_8_is_a_damaged_state(database):
    database.execute("INSERT INTO counts VALUES (CAST(x'ff' AS TEXT), 1)")
    with pytest.raises(StateError, match="damaged"):
        History(database).counts()


def test_what_a_caller_raises_in_a_transaction_is_not_taken_for_damage(database):
    with pytest.raises(UnicodeDecodeError), database.transaction():
        b"\xff".decode()


def modes(folder):
    return {path.relative_to(folder): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


def test_a_state_that_others_could_read_is_closed_to_them_at_the_start(tmp_path):
    folder = StateFolder(tmp_path / "state")
    checkpoint = folder.checkpoints / "step-00000010"
    checkpoint.mkdir(parents=True)
    for path in (folder.database, checkpoint / "meta.json"):
        path.write_bytes(b"")
        path.chmod(0o644)
    for path in (folder.path, folder.checkpoints, checkpoint):
        path.chmod(0o755)
    with locked(folder):
        found = modes(folder.path)
    assert all(mode & 0o077 == 0 for mode in found.values()), found
    assert len(found) == 7


def test_what_a_process_writes_beside_a_state_keeps_its_usual_mode(tmp_path):
    before = os.umask(0o022)
    try:
        with locked(StateFolder(tmp_path / "state")):
            pass
        (tmp_path / "export").write_bytes(b"")
    finally:
        os.umask(before)
    assert modes(tmp_path)[Path("export")] == 0o644


def test_whether_a_node_runs_is_seen_without_touching_its_folder(tmp_path):
    folder = StateFolder(tmp_path / "state")
    assert not is_running(folder)
    assert not folder.path.exists()
    with locked(folder):
        assert is_running(folder)
    assert not is_running(folder)


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


def test_a_link_in_a_state_folder_leads_to_no_other_file(tmp_path):
    """Somebody may have put it there while the folder was open to others."""
    folder, diary = StateFolder(tmp_path / "state"), tmp_path / "diary"
    folder.path.mkdir()
    diary.write_text("dear diary")
    (folder.path / "latest").symlink_to(diary)
    with locked(folder), pytest.raises(LocalError, match="cannot write"):
        StateLocation(folder.path).note(5, 7)
    (folder.path / "lock").unlink()
    (folder.path / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(LocalError, match="cannot use the state folder"), locked(folder):
        pass
    assert diary.read_text() == "dear diary"
    assert not (tmp_path / "new").exists()


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match="--state"), locked(StateFolder(tmp_path / "file" / "x")):
        pass


def test_a_state_folder_that_cannot_be_used_is_found_out_before_anything_is_made(tmp_path, manifest):
    (tmp_path / "file").write_text("")
    for name in ("file", "new/" + "x" * 300):
        with pytest.raises(LocalError, match=r"cannot use the state folder.*choose another --state"):
            require_usable(tmp_path / name, manifest)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    require_usable(tmp_path / "new", manifest)
    (made,) = (tmp_path / "new").iterdir()
    assert not [*made.iterdir()]


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


@pytest.mark.parametrize("target", ["diary", "not there"])
def test_a_link_in_place_of_the_database_makes_no_other_file_a_database(tmp_path, target):
    (tmp_path / "diary").touch()
    (tmp_path / "node.sqlite").symlink_to(tmp_path / target)
    with pytest.raises(StateError, match="is a link, so not a state database"):
        Database(tmp_path / "node.sqlite", SCHEMA)
    assert {path.name: path.stat().st_size for path in tmp_path.glob("*") if not path.is_symlink()} == {"diary": 0}


def test_other_tables_have_another_version():
    """If this fails, raise SCHEMA_VERSION and write the new sum here."""
    assert (SCHEMA_VERSION, crc32("".join(SCHEMA).encode())) == (6, 3352112508)
