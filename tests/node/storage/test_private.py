"""A file with a secret is whole, and only its owner can read it, whatever ends the process or the machine."""

import os
import stat
from pathlib import Path

from sapo_node.storage.files import write_private


def test_a_power_cut_after_a_secret_was_written_cannot_leave_its_file_empty(tmp_path, monkeypatch):
    """An empty feed.json keeps a node from starting, and an empty page-token is another token."""
    synced = []
    fsync = os.fsync

    def told(descriptor):
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, os.fstat(descriptor).st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", told)
    write_private(tmp_path / "feed.json", b"secret", "file")
    assert synced[0] == ("feed.json.new", 6)
    assert synced[1][0] == tmp_path.name
    assert stat.S_IMODE((tmp_path / "feed.json").stat().st_mode) == 0o600
