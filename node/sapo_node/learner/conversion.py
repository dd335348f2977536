"""Converts a GGUF file to a model folder, in a process with limits. It does not import torch."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from sapo_node.learner.cache import put
from sapo_node.learner.folder import ModelError, gguf_folder
from sapo_node.processes.extras import command_for
from sapo_protocol.printable import excerpt

_NEEDED = ("gguf", "numpy", "tokenizers")


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
    # -P: the folder in which the user stands may be foreign, so no module is imported from it.
    command = [
        sys.executable,
        "-P",
        "-m",
        "sapo_node.learner.gguf",
        str(file.absolute()),
        str(folder),
        str(os.getpid()),
    ]
    # Libraries write words of the file to stderr. What went wrong is told on stdout.
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        found = done.stdout.decode("utf-8", "replace") or "converting it takes too much time or memory"
        raise ModelError(f"{file} cannot be converted: {excerpt(found)}")


def require_converter() -> None:
    """Raises ModelError if a package is missing that converts GGUF files."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ModelError(f"a GGUF file needs the package {missing[0]}, which is not installed: {command_for('gguf')}")
