"""A backup holds a state and no key; what is restored is noticed, and nothing is overwritten."""

import hashlib
import io
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mutation import mutated
from processes import ENVIRONMENT, PATIENCE
from row_parts import sums, task_from
from sapo_node.app.state import SCHEMA, StateFolder, locked, state_folder
from sapo_node.cli.backup import restore_backup, write_backup
from sapo_node.cli.main import main
from sapo_node.observability.history import History
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.keys import create_key
from sapo_node.storage.location import StateLocation
from sapo_node.storage.row_files import open_rows
from sapo_protocol import LocalError, load_manifest, render_manifest

FILES = ("meta.json", "optimizer.safetensors", "weights.safetensors")
BEST_FILES = ("meta.json", "weights.safetensors")
MINE = {"peer_id": "12D3KooWmine", "network_id": "aa" * 32}


def restore(file, folder, **owner):
    restore_backup(file, folder, folder.path.parent / "files", **MINE | owner)


@pytest.fixture
def folder(tmp_path, manifest, rng):
    """A state with a session, a round reserved, two checkpoints and the best weights."""
    folder = StateFolder(tmp_path / "state")
    with locked(folder):
        database = Database(folder.database, SCHEMA)
        History(database).describe_session(MINE)
        counters = Counters(
            database, manifest, now=1_000, key_is_new=True, rng=rng, location=StateLocation(folder.path)
        )
        counters.reserve(1_000)
        database.close()
    for step in (10, 20):
        checkpoint = folder.checkpoints / f"step-{step:08d}"
        checkpoint.mkdir(parents=True)
        for name in FILES:
            (checkpoint / name).write_bytes(bytes([step]) * 1_000)
    (folder.checkpoints / "best-00000010").mkdir()
    for name in BEST_FILES:
        (folder.checkpoints / "best-00000010" / name).write_bytes(b"best")
    (folder.checkpoints / ".unfinished-step-00000030").mkdir()
    return folder


@pytest.fixture
def file(folder, tmp_path):
    write_backup(folder, tmp_path / "state.tar")
    return tmp_path / "state.tar"


def test_a_backup_holds_the_database_the_finished_checkpoints_and_the_best_weights_alone(file):
    with tarfile.open(file) as archive:
        files = {each.name for each in archive.getmembers() if each.isfile()}
    checkpoints = {f"checkpoints/step-{step:08d}/{name}" for step in (10, 20) for name in FILES}
    assert files == {"node.sqlite", *checkpoints, *(f"checkpoints/best-00000010/{name}" for name in BEST_FILES)}


ROWS = b'{"answer":"2","prompt":"1 + 1"}\n'
ROWS_NAME = f"{hashlib.sha256(ROWS).hexdigest()}.jsonl"


@pytest.fixture
def file_with_rows(folder, tmp_path):
    """A backup of a swarm with two files of rows, of which this node lacks one."""
    kept = tmp_path / "own" / "files"
    kept.mkdir(parents=True)
    (kept / ROWS_NAME).write_bytes(ROWS)
    write_backup(folder, tmp_path / "state.tar", (kept / ROWS_NAME, kept / f"{'0' * 64}.jsonl"))
    return tmp_path / "state.tar"


def test_the_files_of_rows_are_restored_to_their_folder_for_their_owner_alone(file_with_rows, tmp_path):
    restore(file_with_rows, StateFolder(tmp_path / "restored" / "state"))
    (rows,) = (tmp_path / "restored" / "files").iterdir()
    assert (rows.name, rows.read_bytes()) == (ROWS_NAME, ROWS)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (rows, rows.parent)] == [0o600, 0o700]


def test_the_command_takes_the_files_that_the_manifest_names(run_here, tmp_path, manifest):
    task = task_from(sums(40), tmp_path / "states" / "files")
    (tmp_path / "files.toml").write_text(render_manifest(replace(manifest, tasks=(task,))), "utf-8")
    identity = create_key(tmp_path / "node.key", None)
    where = ("--key", tmp_path / "node.key", "--swarm", tmp_path / "files.toml", "--state")
    folder = state_folder(tmp_path / "states", load_manifest(str(tmp_path / "files.toml")), identity.peer_id)
    folder.path.mkdir(parents=True)
    Database(folder.database, SCHEMA).close()
    for command, states in (("backup", "states"), ("restore", "moved")):
        code, printed = run_here(main, "state", command, tmp_path / "state.tar", *where, tmp_path / states)
        assert code == 0, printed.err
    assert open_rows([task], tmp_path / "moved" / "files")


def test_a_file_of_rows_that_is_there_already_does_not_stop_a_restore(file_with_rows, tmp_path):
    there = tmp_path / "restored" / "files" / ROWS_NAME
    there.parent.mkdir(parents=True)
    there.write_bytes(ROWS)
    restore(file_with_rows, StateFolder(tmp_path / "restored" / "state"))
    assert there.read_bytes() == ROWS


def test_a_backup_whose_rows_lack_the_hash_in_their_name_is_refused(folder, tmp_path):
    changed = tmp_path / "own" / ROWS_NAME
    changed.parent.mkdir()
    changed.write_bytes(ROWS.replace(b"2", b"3"))
    write_backup(folder, tmp_path / "state.tar", (changed,))
    with pytest.raises(LocalError, match="its SHA-256 is not its name"):
        restore(tmp_path / "state.tar", StateFolder(tmp_path / "restored" / "state"))
    assert not (tmp_path / "restored").exists()


def test_a_backup_follows_no_link_in_the_place_of_rows(folder, tmp_path):
    (tmp_path / "secret").write_bytes(ROWS)
    (tmp_path / ROWS_NAME).symlink_to(tmp_path / "secret")
    with pytest.raises(LocalError, match="is a link"):
        write_backup(folder, tmp_path / "state.tar", (tmp_path / ROWS_NAME,))
    assert not (tmp_path / "state.tar").exists()


@pytest.mark.parametrize("umask", [0, 0o022])
def test_only_its_owner_can_read_a_backup_and_what_is_restored_from_it(folder, tmp_path, umask):
    before = os.umask(umask)
    try:
        write_backup(folder, tmp_path / "state.tar")
        restored = StateFolder(tmp_path / "restored")
        restore(tmp_path / "state.tar", restored)
    finally:
        os.umask(before)
    found = [tmp_path / "state.tar", restored.path, *restored.path.rglob("*")]
    assert len(found) == 15
    assert [each for each in found if stat.S_IMODE(each.stat().st_mode) & 0o077] == []


def test_a_folder_that_was_open_to_others_is_closed_before_a_state_is_restored_to_it(file, tmp_path):
    """Whoever can write the folder can put another database in the place of the restored one."""
    restored = StateFolder(tmp_path / "restored")
    restored.path.mkdir()
    restored.path.chmod(0o777)
    restore(file, restored)
    assert stat.S_IMODE(restored.path.stat().st_mode) == 0o700


def test_what_is_restored_goes_on_where_it_was_and_listens_first(file, tmp_path, manifest, rng):
    restored = StateFolder(tmp_path / "elsewhere" / "state")
    restore(file, restored)
    assert (restored.checkpoints / "step-00000020" / "weights.safetensors").read_bytes() == bytes([20]) * 1_000
    with locked(restored):
        database = Database(restored.database, SCHEMA)
        counters = Counters(
            database, manifest, now=1_000, key_is_new=False, rng=rng, location=StateLocation(restored.path)
        )
        assert counters.listening_seconds(1_000, 0.0) >= 800
        assert counters.reserve(1_000).counter == 1


@pytest.mark.parametrize("other", [{"peer_id": "12D3KooWother"}, {"network_id": "bb" * 32}])
def test_a_state_of_another_key_or_swarm_is_refused_and_both_are_named(file, tmp_path, other):
    restored = StateFolder(tmp_path / "elsewhere")
    with pytest.raises(LocalError, match="--key and --swarm") as refused:
        restore(file, restored, **other)
    for each in (*MINE.values(), *other.values()):
        assert each[:16] in str(refused.value)
    assert not restored.path.exists()


def test_a_state_that_never_came_so_far_as_to_publish_belongs_to_whom_it_is_given(folder, tmp_path):
    with sqlite3.connect(folder.database) as connection:
        connection.execute("DELETE FROM session")
    write_backup(folder, tmp_path / "state.tar")
    restore(tmp_path / "state.tar", StateFolder(tmp_path / "elsewhere"))


def test_a_backup_of_a_running_node_is_of_one_moment(folder, tmp_path):
    database = Database(folder.database, SCHEMA)
    with database.transaction():
        database.execute("INSERT INTO counts VALUES ('half done', 1)")
        write_backup(folder, tmp_path / "running.tar")
    restore(tmp_path / "running.tar", StateFolder(tmp_path / "restored"))
    with sqlite3.connect(tmp_path / "restored" / "node.sqlite") as restored:
        assert restored.execute("SELECT * FROM counts").fetchall() == []


def test_a_checkpoint_that_lacks_a_file_is_left_out(folder, tmp_path):
    (folder.checkpoints / "step-00000010" / "meta.json").unlink()
    write_backup(folder, tmp_path / "state.tar")
    restore(tmp_path / "state.tar", StateFolder(tmp_path / "restored"))
    found = {each.name for each in (tmp_path / "restored" / "checkpoints").iterdir()}
    assert found == {"best-00000010", "step-00000020"}


def test_a_damaged_database_is_not_backed_up_and_the_error_says_what_to_do(folder, tmp_path):
    data = bytearray(folder.database.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 5_000] = b"\xff" * 5_000
    folder.database.write_bytes(data)
    with pytest.raises(StateError, match=r"state/node\.sqlite is damaged.*restore it from a backup"):
        write_backup(folder, tmp_path / "state.tar")
    assert not (tmp_path / "state.tar").exists()


@pytest.mark.parametrize("output", ["nowhere/state.tar", "file/state.tar"])
def test_an_output_that_cannot_be_written_is_named(folder, tmp_path, output):
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match=f"cannot write the backup .*{output}"):
        write_backup(folder, tmp_path / output)


def test_nothing_is_overwritten(folder, file):
    with pytest.raises(LocalError, match="exists; name a new file"):
        write_backup(folder, file)
    with pytest.raises(LocalError, match="move it away first"):
        restore(file, folder)


@pytest.mark.parametrize("rest", ["node.sqlite-wal", "checkpoints"])
def test_nothing_is_restored_beside_the_rest_of_another_state(folder, file, tmp_path, rest):
    there = StateFolder(tmp_path / "there")
    there.path.mkdir()
    if rest == "checkpoints":
        shutil.copytree(folder.checkpoints, there.checkpoints)
    else:
        (there.path / rest).write_bytes(b"")
    with pytest.raises(LocalError, match="move it away first"):
        restore(file, there)
    assert not there.database.exists()


def archive_of(path, *members, **settings):
    with tarfile.open(path, "w", **settings) as archive:
        for name, content, kind in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            member.linkname = "node.sqlite" if kind in {tarfile.SYMTYPE, tarfile.LNKTYPE} else ""
            archive.addfile(member, io.BytesIO(content))
    return path


NAMES = [
    *("NODE.SQLITE", "node.sqlite\n", "node.sqlite-wal", "lock", "checkpoints/step-1/meta.json", "a" * 99),
    *("files/rows.jsonl", f"files/{'0' * 63}.jsonl", f"files/../{'0' * 64}.jsonl"),
]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_of_another_name_is_refused(tmp_path, name):
    members = [(name, b"", tarfile.REGTYPE), DATABASE, FOLDER]
    with pytest.raises(LocalError, match="is no backup of a node"):
        restore(archive_of(tmp_path / "bad.tar", *members), StateFolder(tmp_path / "state"))


DATABASE = ("node.sqlite", b"", tarfile.REGTYPE)
FOLDER = ("checkpoints", b"", tarfile.DIRTYPE)
STEP = "checkpoints/step-00000010"


@pytest.mark.parametrize(
    "members",
    [
        [DATABASE],
        [FOLDER],
        [DATABASE, FOLDER, ("more", b"", tarfile.REGTYPE)],
        [("node.sqlite", b"", tarfile.SYMTYPE), FOLDER],
        [DATABASE, FOLDER, (f"{STEP}/meta.json", b"", tarfile.LNKTYPE)],
        [DATABASE, FOLDER, (f"{STEP}/meta.json", b"", tarfile.FIFOTYPE)],
        [DATABASE, FOLDER, (f"{STEP}/meta.json", b"", tarfile.GNUTYPE_SPARSE)],
        [DATABASE, FOLDER, (f"{STEP}/meta.json", bytes(70_000), tarfile.REGTYPE)],
        [DATABASE, FOLDER, (f"{STEP}/more/meta.json", b"", tarfile.REGTYPE)],
        [DATABASE, FOLDER, (f"{STEP}/code.py", b"", tarfile.REGTYPE)],
        [DATABASE, DATABASE, FOLDER],
        [("../node.sqlite", b"", tarfile.REGTYPE), FOLDER],
        [("/node.sqlite", b"", tarfile.REGTYPE), FOLDER],
        [("checkpoints/../../escaped", b"x", tarfile.REGTYPE), DATABASE],
        [DATABASE, *[FOLDER] * 1_000],
    ],
    ids=[
        *("no checkpoints", "no database file", "more", "a link", "a hard link", "a pipe", "a sparse file"),
        *(
            "a large meta.json",
            "deeper",
            "another file",
            "twice",
            "above",
            "absolute",
            "escaping",
            "many",
        ),
    ],
)
def test_what_is_no_backup_is_refused_and_leaves_nothing_behind(tmp_path, members):
    folder = StateFolder(tmp_path / "deep" / "state")
    with pytest.raises(LocalError, match="is no backup of a node"):
        restore(archive_of(tmp_path / "bad.tar", *members), folder)
    assert not folder.path.exists()
    assert not (tmp_path / "deep" / "escaped").exists()


def test_a_file_of_1_tb_that_is_not_there_takes_no_space(tmp_path):
    member = tarfile.TarInfo("node.sqlite")
    member.size = 2**40
    (tmp_path / "bad.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT))
    folder = StateFolder(tmp_path / "state")
    with pytest.raises(LocalError, match="is no backup of a node"):
        restore(tmp_path / "bad.tar", folder)
    assert not folder.path.exists()


def test_an_archive_of_another_format_restores_the_same(file, tmp_path):
    """As tar writes it with extended headers, which it needs for weights of 8 GiB and more."""
    with tarfile.open(file) as archive, tarfile.open(tmp_path / "copy.tar", "w", format=tarfile.PAX_FORMAT) as copy:
        for each in archive:
            each.mtime, each.mode = 0.5, 0o777
            copy.addfile(each, archive.extractfile(each) if each.isfile() else None)
    restored = StateFolder(tmp_path / "restored")
    restore(tmp_path / "copy.tar", restored)
    assert (restored.checkpoints / "step-00000010" / "meta.json").read_bytes() == bytes([10]) * 1_000
    assert [each for each in restored.path.rglob("*") if stat.S_IMODE(each.stat().st_mode) & 0o077] == []


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo], ids=["a folder", "a pipe"])
def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path, make):
    make(tmp_path / "it")
    with pytest.raises(LocalError, match="not a backup"):
        restore(tmp_path / "it", StateFolder(tmp_path / "state"))


def test_a_database_that_is_none_is_damaged(tmp_path):
    members = [("node.sqlite", b"no database at all, but long enough to look", tarfile.REGTYPE), FOLDER]
    with pytest.raises(LocalError, match="is damaged"):
        restore(archive_of(tmp_path / "bad.tar", *members), StateFolder(tmp_path / "state"))


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a backup")
    with pytest.raises(LocalError, match="is no backup of a node"):
        restore(tmp_path / "text", StateFolder(tmp_path / "state"))


@pytest.mark.slow
def test_a_thousand_damaged_backups_each_load_or_are_one_error(file, memory_folder):
    data, rng, refused = file.read_bytes(), random.Random(4), 0
    for _ in range(1_000):
        (memory_folder / "bad.tar").write_bytes(mutated(data, rng))
        restored = StateFolder(memory_folder / "state")
        try:
            restore(memory_folder / "bad.tar", restored)
        except LocalError:
            refused += 1
        else:
            shutil.rmtree(restored.path)
        assert not restored.path.exists()
    assert 100 < refused < 1_000


@pytest.mark.parametrize(
    ("target", "said"), [("/dev/null", "is a link"), ("secret", "is a link"), (None, "a pipe or a device")]
)
def test_a_backup_holds_nothing_to_which_a_checkpoint_leads(folder, tmp_path, target, said):
    """Through a link to /dev/zero a backup would fill the disk."""
    (tmp_path / "secret").write_text("the key of another program")
    weights = folder.checkpoints / "step-00000010" / "weights.safetensors"
    weights.unlink()
    if target:
        weights.symlink_to(tmp_path / target)
    else:
        os.mkfifo(weights)
    with pytest.raises(LocalError, match=said):
        write_backup(folder, tmp_path / "state.tar")
    assert {path.name for path in tmp_path.iterdir()} == {"state", "secret"}


_LONG_BACKUP = """
import sys
from pathlib import Path
from sapo_node.app.state import StateFolder
from sapo_node.cli.backup import write_backup
write_backup(StateFolder(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.fixture
def stopped(folder, tmp_path):
    """A process that is stopped in the middle of a backup, and the hidden folder that it has made."""
    with (folder.checkpoints / "step-00000020" / "weights.safetensors").open("wb") as weights:
        weights.truncate(2**31)
    command = [sys.executable, "-c", _LONG_BACKUP, str(folder.path), str(tmp_path / "first.tar")]
    with subprocess.Popen(command, env=ENVIRONMENT) as process:
        end = time.monotonic() + PATIENCE
        while not (found := list(tmp_path.glob(".*/checkpoints/step-*"))):
            assert time.monotonic() < end
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        yield process, found[0].parents[1]
        process.kill()


def small(folder):
    """The same state with weights that are copied in no time."""
    (folder.checkpoints / "step-00000020" / "weights.safetensors").write_bytes(b"small")


def test_what_a_killed_backup_has_left_is_readable_by_its_owner_alone_and_the_next_backup_removes_it(
    stopped, folder, tmp_path
):
    process, left = stopped
    process.kill()
    process.wait()
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    small(folder)
    write_backup(folder, tmp_path / "second.tar")
    assert {each.name for each in tmp_path.iterdir()} == {"state", "second.tar"}


def test_a_backup_takes_nothing_from_another_one_that_is_still_being_written(stopped, folder, tmp_path):
    _, left = stopped
    before = sorted(left.rglob("*"))
    small(folder)
    write_backup(folder, tmp_path / "second.tar")
    assert sorted(left.rglob("*")) == before


def test_a_backup_removes_no_hidden_folder_of_another_program(folder, tmp_path):
    others = [tmp_path / name for name in (".backup-2025", ".sapo-backup-old", ".sapo-backup-abcdefgh.d")]
    for each in others:
        each.mkdir()
        (each / "file").write_text("kept")
    (tmp_path / ".sapo-backup-abcdefgh").symlink_to(others[0])
    write_backup(folder, tmp_path / "state.tar")
    assert all((each / "file").exists() for each in others)


def test_what_a_killed_restore_has_left_is_removed_by_the_next(file, tmp_path):
    restored = StateFolder(tmp_path / "restored")
    (restored.path / ".sapo-restore-abcdefgh" / "checkpoints").mkdir(parents=True)
    restore(file, restored)
    assert {each.name for each in restored.path.iterdir()} == {"node.sqlite", "checkpoints"}


@pytest.mark.parametrize("linked", ["checkpoints", "checkpoints/step-00000010", "node.sqlite"])
def test_a_backup_follows_no_link_in_the_state_folder(folder, tmp_path, linked):
    """Whoever can write into the folder could put what this user may read into a backup."""
    place = folder.path / linked
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocalError, match=f"{linked} is a link"):
        write_backup(folder, tmp_path / "state.tar")
    assert {path.name for path in tmp_path.iterdir()} == {"state", "elsewhere"}


def test_a_refused_restore_leaves_no_folder(tmp_path):
    (tmp_path / "noise").write_bytes(b"x" * 2_000)
    with pytest.raises(LocalError, match="no backup"):
        restore(tmp_path / "noise", StateFolder(tmp_path / "state" / "swarm" / "peer"))
    assert [each.name for each in tmp_path.iterdir()] == ["noise"]


def test_a_restore_for_which_the_disk_has_no_room_leaves_nothing_and_says_what_to_do(file, tmp_path):
    """Files of 500 bytes at most stand for the full disk."""
    restored = StateFolder(tmp_path / "restored")
    restored.path.mkdir()
    (restored.path / "page-token").write_text("kept")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        with pytest.raises(LocalError, match="choose another --state, or free some space"):
            restore(file, restored)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {each.name: each.read_text() for each in restored.path.iterdir()} == {"page-token": "kept"}
    restore(file, restored)


_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
_LOOK = """
import sys
from pathlib import Path
from sapo_node.app.state import StateFolder, reading
from sapo_node.cli.backup import write_backup
from sapo_node.observability.history import History
folder = StateFolder(Path(sys.argv[1]))
with reading(folder) as database:
    print(History(database).session()["peer_id"])
write_backup(folder, Path(sys.argv[2]))
"""


def read_only(folder, *command):
    """Run a command where the folder is mounted for reading alone."""
    own_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    within = ("unshare", *own_root, "--mount", "sh", "-c", _READ_ONLY, "sh", folder)
    return subprocess.run([*within, *command], env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_the_state_of_a_stopped_node_is_read_and_copied_where_nothing_can_be_written(folder, tmp_path):
    if not shutil.which("unshare") or read_only(folder.path, "true").returncode:
        pytest.skip("this machine mounts no folder for reading alone")
    done = read_only(folder.path, sys.executable, "-c", _LOOK, folder.path, tmp_path / "state.tar")
    assert done.stdout == f"{MINE['peer_id']}\n", done.stderr
    restored = StateFolder(tmp_path / "restored")
    restore(tmp_path / "state.tar", restored)
    assert restored.database.exists()


@pytest.fixture
def synced(monkeypatch):
    """The paths that were written to the disk, each as it was then called."""
    paths = []
    fsync = os.fsync

    def told(descriptor):
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", told)
    return paths


def test_a_power_cut_after_a_backup_cannot_leave_it_empty(folder, tmp_path, synced):
    write_backup(folder, tmp_path / "first.tar")
    content, name = synced
    assert (content.name, content.parent.parent) == ("state.tar", tmp_path)
    assert name == tmp_path


def test_a_power_cut_after_a_restore_cannot_leave_it_empty(file, tmp_path, synced):
    restored = StateFolder(tmp_path / "restored")
    restore(file, restored)
    inside = {path.relative_to(restored.path).parts[1:] for path in synced[:-1]}
    assert {path.relative_to(restored.path).parts for path in restored.path.rglob("*")} < inside
    assert synced[-1] == restored.path
