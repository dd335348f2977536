"""A backup: it is restored, or one error of ours says why not; nothing is written outside, and nothing is left."""

import functools
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Source, refusal_is_a_line, small_pages

from sapo_node.app.state import StateFolder
from sapo_node.cli.backup import restore_backup
from sapo_node.observability.history import SCHEMA
from sapo_node.storage.database import Database

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
ROOT = Path(_TEMPORARY.name)
FILE, STATE = ROOT / "backup.tar", StateFolder(ROOT / "inside" / "state")
STEP = "checkpoints/step-00000010"
NAMES = (
    *("node.sqlite", "checkpoints", STEP, f"{STEP}/meta.json", f"{STEP}/weights.safetensors", "lock", ""),
    *("/node.sqlite", "../node.sqlite", "checkpoints/../../x", "node.sqlite-wal", "./node.sqlite", "a" * 200),
)
KINDS = tuple(bytes([kind]) for kind in b"\0\00001234567LKSxgX5")


@functools.cache
def database() -> bytes:
    """A good database of the only table that a restore reads, in small pages."""
    path = ROOT / "good"
    small_pages(path)
    Database(path, (SCHEMA,)).close()
    return path.read_bytes()


def fuzz(data: bytes) -> None:
    archive = built(Source(data))
    FILE.write_bytes(archive)
    good = database()
    before = {path: path.stat().st_size for path in ROOT.rglob("*")}
    try:
        with refusal_is_a_line():
            restore_backup(FILE, STATE, peer_id="12D3KooWmine", network_id="aa" * 32)
        written = [path for path in STATE.path.rglob("*") if path.is_file()]
        assert not any(path.is_symlink() for path in written)
        assert sum(path.stat().st_size for path in written) <= len(archive)
        if STATE.path.exists():  # a refused one leaves no folder
            assert {path.name for path in STATE.path.iterdir()} == {"node.sqlite", "checkpoints"}
            assert STATE.database.read_bytes()[:16] == good[:16]
    finally:
        shutil.rmtree(STATE.path.parent, ignore_errors=True)
    assert {path: path.stat().st_size for path in ROOT.rglob("*")} == before


def built(source: Source) -> bytes:
    """Bytes as they are, or entries put together; then perhaps some bytes changed."""
    if source.number() & 1:
        return source.rest()
    archive = b""
    for _ in range(source.below(8)):
        member = tarfile.TarInfo([*NAMES, source.string().decode("latin-1")][source.below(len(NAMES) + 1)])
        member.type = KINDS[source.below(len(KINDS))]
        content = (database(), b"", source.string(), b"19 size=%d\n" % source.number(8))[source.below(4)]
        member.size = (len(content), source.number(4), 2**40)[source.below(3)]
        member.linkname = "/etc/passwd"
        archive += member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)
    changed = bytearray(archive + bytes(1_024) * source.below(2))
    while source and changed:
        changed[source.number(2) % len(changed)] ^= source.number()
    return bytes(changed)


def seeds() -> Iterator[bytes]:
    good = io.BytesIO()
    with tarfile.open(fileobj=good, mode="w") as archive:
        for name, content in (("node.sqlite", database()), (f"{STEP}/meta.json", b"{}")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        folder = tarfile.TarInfo("checkpoints")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    yield b"\1" + good.getvalue()
    for kind in range(len(KINDS)):
        yield bytes([0, 3, 0, 0, 0, 0, 1, kind, 1, 0, kind % len(NAMES), kind, 2, 3, 65, 66, 67, 0])
