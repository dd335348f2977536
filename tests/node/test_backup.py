"""A backup holds a state and no key; what is restored is noticed, and nothing is overwritten."""

import io
import sqlite3
import tarfile

import pytest

from sapo_node.backup import restore_backup, write_backup
from sapo_node.counters import Counters
from sapo_node.database import Database
from sapo_node.place import Place
from sapo_node.state import SCHEMA, StateFolder, locked
from sapo_protocol import LocalError


@pytest.fixture
def folder(tmp_path, manifest, rng):
    """A state with a round reserved and two checkpoints."""
    folder = StateFolder(tmp_path / "state")
    with locked(folder):
        database = Database(folder.database, SCHEMA)
        counters = Counters(database, manifest, now=1_000, key_is_new=True, rng=rng, place=Place(folder.path))
        counters.reserve(1_000)
        database.close()
    for step in (10, 20):
        checkpoint = folder.checkpoints / f"step-{step:08d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights.safetensors").write_bytes(bytes([step]) * 1_000)
    (folder.checkpoints / ".unfinished-step-00000030").mkdir()
    return folder


@pytest.fixture
def file(folder, tmp_path):
    write_backup(folder, tmp_path / "state.tar")
    return tmp_path / "state.tar"


def test_a_backup_holds_the_database_and_the_finished_checkpoints_alone(file):
    with tarfile.open(file) as archive:
        files = {each.name for each in archive.getmembers() if each.isfile()}
    checkpoints = {f"checkpoints/step-{step:08d}/weights.safetensors" for step in (10, 20)}
    assert files == {"node.sqlite", *checkpoints}


def test_what_is_restored_goes_on_where_it_was_and_listens_first(file, tmp_path, manifest, rng):
    restored = StateFolder(tmp_path / "elsewhere" / "state")
    restore_backup(file, restored)
    assert (restored.checkpoints / "step-00000020" / "weights.safetensors").read_bytes() == bytes([20]) * 1_000
    with locked(restored):
        database = Database(restored.database, SCHEMA)
        counters = Counters(database, manifest, now=1_000, key_is_new=False, rng=rng, place=Place(restored.path))
        assert counters.listening_seconds(1_000) >= 800
        assert counters.reserve(1_000).counter == 1


def test_a_backup_of_a_running_node_is_of_one_moment(folder, tmp_path):
    database = Database(folder.database, SCHEMA)
    with database.transaction():
        database.execute("INSERT INTO counts VALUES ('half done', 1)")
        write_backup(folder, tmp_path / "running.tar")
    restore_backup(tmp_path / "running.tar", StateFolder(tmp_path / "restored"))
    with sqlite3.connect(tmp_path / "restored" / "node.sqlite") as restored:
        assert restored.execute("SELECT * FROM counts").fetchall() == []


def test_nothing_is_overwritten(folder, file):
    with pytest.raises(LocalError, match="exists: name a new file"):
        write_backup(folder, file)
    with pytest.raises(LocalError, match="move it away first"):
        restore_backup(file, folder)


def archive_of(path, *members):
    with tarfile.open(path, "w") as archive:
        for name, content, kind in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            member.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            archive.addfile(member, io.BytesIO(content))
    return path


FOLDER = ("checkpoints", b"", tarfile.DIRTYPE)


@pytest.mark.parametrize(
    "members",
    [
        [("node.sqlite", b"", tarfile.REGTYPE)],
        [("node.sqlite", b"", tarfile.REGTYPE), FOLDER, ("more", b"", tarfile.REGTYPE)],
        [("node.sqlite", b"", tarfile.SYMTYPE), FOLDER],
        [("../node.sqlite", b"", tarfile.REGTYPE), FOLDER],
        [("/node.sqlite", b"", tarfile.REGTYPE), FOLDER],
        [("checkpoints/../../escaped", b"x", tarfile.REGTYPE), ("node.sqlite", b"", tarfile.REGTYPE)],
        [
            ("node.sqlite", b"no database at all, but long enough to look", tarfile.REGTYPE),
            FOLDER,
        ],
    ],
    ids=["no checkpoints", "more", "a link", "above", "absolute", "escaping", "no database"],
)
def test_what_is_no_backup_is_refused_and_leaves_nothing_behind(tmp_path, members):
    folder = StateFolder(tmp_path / "deep" / "state")
    with pytest.raises(LocalError):
        restore_backup(archive_of(tmp_path / "bad.tar", *members), folder)
    assert list(folder.path.iterdir()) == []
    assert not (tmp_path / "deep" / "escaped").exists()


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a backup")
    with pytest.raises(LocalError, match="cannot restore"):
        restore_backup(tmp_path / "text", StateFolder(tmp_path / "state"))
