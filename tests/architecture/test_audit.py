"""`make audit` compares the pins with advisories, and says so if it could not."""

import json
import re
import runpy
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
[PINNED] = re.findall(r"^cryptography==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


@dataclass(frozen=True)
class Done:
    """What the script has returned and printed."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def audit(monkeypatch, capsys):
    """Runs the script in this process, with an index that is not there."""
    monkeypatch.setenv("OSV_URL", "http://127.0.0.1:9/")
    monkeypatch.syspath_prepend(ROOT / "scripts")

    def run(*arguments):
        code = runpy.run_path(str(ROOT / "scripts" / "audit.py"))["main"](list(arguments))
        return Done(code, *capsys.readouterr())

    return run


def snapshot(folder, affected, **changes):
    advisory = {"id": "TEST-1", "summary": "bad", "affected": [{"package": {"name": "Cryptography"}, **affected}]}
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("TEST-1.json", json.dumps(advisory | changes))
    return folder / "all.zip"


def between(*events):
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    "affected",
    [{"versions": [PINNED]}, between({"introduced": "0"}), between({"introduced": "0"}, {"last_affected": PINNED})],
)
def test_a_pin_with_an_advisory_is_named(audit, tmp_path, affected):
    done = audit(snapshot(tmp_path, affected))
    assert done.returncode == 1
    assert f"cryptography {PINNED}: TEST-1, bad" in done.stdout


@pytest.mark.parametrize(
    ("affected", "changes"),
    [
        ({"versions": ["0.1"]}, {}),
        (between({"introduced": "0"}, {"fixed": PINNED}), {}),
        ({"versions": [PINNED]}, {"withdrawn": "2026-01-01T00:00:00Z"}),
    ],
)
def test_a_pin_without_one_passes(audit, tmp_path, affected, changes):
    done = audit(snapshot(tmp_path, affected, **changes))
    assert (done.returncode, done.stderr) == (0, "")
    assert "pins compared, 0 advisories" in done.stdout


def test_where_no_advisories_can_be_read_nothing_passes(audit, tmp_path):
    (tmp_path / "all.zip").write_bytes(b"no archive")
    for done in (audit(), audit(tmp_path / "all.zip"), audit(tmp_path / "missing.zip")):
        assert done.returncode == 3
        assert done.stderr.startswith("nothing was compared")


ODD = ["[]", "7", '{"affected": null}', '{"affected": [7]}', '{"affected": [{"package": {"name": 7}}]}', "[" * 99_999]


@pytest.mark.parametrize("odd", ODD, ids=lambda text: text[:40])
def test_an_advisory_of_another_shape_is_no_advisory_that_was_found(audit, tmp_path, odd):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("TEST-1.json", odd)
    done = audit(tmp_path / "all.zip")
    assert done.returncode == 3
    assert done.stderr.startswith("nothing was compared")


def a_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("TEST-1.json", "w") as member:
        for _ in range(200):
            member.write(b" " * 2**20)
        member.write(b'{"affected": []}')


def changed(path, old, new):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("TEST-1.json", json.dumps({"affected": [], "summary": "a text of some length" * 9}))
    path.write_bytes(path.read_bytes().replace(old, new))


def data_of(path):
    changed(path, b"", b"")
    data = bytearray(path.read_bytes())
    data[50:60] = b"\xff" * 10
    path.write_bytes(data)


SNAPSHOTS = {
    "nothing": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.mkdir(),
    "compressed data that is none": data_of,
    "an unknown compression": lambda path: changed(path, b"\x00\x00\x08\x00", b"\x00\x00\x63\x00"),
    "an encrypted member": lambda path: changed(path, b"\x00\x00\x08\x00", b"\x01\x00\x08\x00"),
}


@pytest.mark.parametrize(
    "write",
    [*SNAPSHOTS.values(), pytest.param(a_bomb, marks=pytest.mark.slow)],
    ids=[*SNAPSHOTS, "an advisory of 200 MB"],
)
def test_a_snapshot_that_cannot_be_read_is_one_line_and_nothing_was_compared(audit, tmp_path, write):
    write(tmp_path / "all.zip")
    done = audit(tmp_path / "all.zip")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("nothing was compared")
    assert len(done.stderr.splitlines()) == 1


def test_the_words_of_an_advisory_cannot_steer_the_terminal(audit, tmp_path):
    done = audit(snapshot(tmp_path, {"versions": [PINNED]}, summary="\x1b[2Jcleared"))
    assert "TEST-1, \\x1b[2Jcleared" in done.stdout
