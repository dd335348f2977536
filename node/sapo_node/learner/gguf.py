"""Converts a GGUF file to a model folder in the cache, in a child process that transformers cannot take down with it.

The cache holds a converted file under its SHA-256, and a fetched model under its name. A folder in the cache is
complete: it appears by one rename. This module does not import torch.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from sapo_node.learner.client import offline
from sapo_node.learner.folder import ModelError, gguf_folder
from sapo_node.processes.extras import command_for
from sapo_node.storage.files import new_folder
from sapo_protocol.printable import excerpt

_NEEDED = ("gguf", "numpy")


def convert(file: Path, tell: Callable[[str], None]) -> None:
    """Convert a GGUF file into the cache, unless that is done. `tell` gets one line before. Raises ModelError."""
    target = gguf_folder(file)
    if target.is_dir():
        return
    require_converter()
    tell(f"converting {file} into {target}; this is done once")

    def write(folder: Path) -> None:
        convert_into(file, folder)
        sha256 = target.name.removeprefix("gguf-")
        origin = f"Converted by sapo-node from {file.name}, a GGUF file with the SHA-256 {sha256}.\n"
        (folder / "ORIGIN.txt").write_text(origin, "utf-8")

    try:
        put(target, write)
    except OSError as error:
        raise ModelError(f"cannot write {target}: {error.strerror}; free some space there") from error


def convert_into(file: Path, folder: Path) -> None:
    """Convert a GGUF file into an empty folder. Raises ModelError."""
    # -P: the current folder may be foreign, so Python imports no module from it.
    program = [sys.executable, "-P", "-m", "sapo_node.learner.from_gguf"]
    # transformers writes to stderr, and the child writes why it failed to stdout.
    done = subprocess.run(
        [*program, str(file.absolute()), str(folder), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=offline(),
        check=False,
    )
    if done.returncode:
        found = done.stdout.decode("utf-8", "replace") or "the conversion takes too much time or memory"
        raise ModelError(f"{file} cannot be converted: {excerpt(found)}")


def require_converter() -> None:
    """Raises ModelError if a package is missing with which transformers reads GGUF files."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ModelError(f"a GGUF file needs the package {missing[0]}, which is not installed: {command_for('gguf')}")


def put(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill an empty folder, and rename it to `target`. If `write` raises, no folder remains."""
    try:
        with new_folder(target, "model") as made:
            write(made)
    except OSError as error:
        # Another process may have put the same model there first.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not target.is_dir():
            raise
