"""The process that converts a GGUF file, under limits: `python -m sapo_node.learner.gguf FILE FOLDER PARENT_PID`.

Its output is empty if it succeeds, and otherwise one line that says why not.
"""

import os
import sys
from pathlib import Path

from sapo_node.learner.confine import confine
from sapo_node.learner.gguf.folder import write_folder
from sapo_node.processes.launch import die_with_parent
from sapo_protocol.errors import LocalError

BASE_SECONDS = 30
"""Seconds of processor time for a small file. It takes most of them for tokenizers with many merges."""
SECONDS_PER_GIB = 120
"""Seconds of processor time for each GiB of the file. A slow core takes 40 s."""
MEMORY = 8 * 2**30
"""Bytes that the process may map beyond the file. The largest tensor of a Llama with 8 B parameters needs 5 GiB."""
GROWTH = 16
"""Bytes that a byte of the file becomes, at most: the smallest formats hold a number in 1.06 bits."""
SETTINGS_BYTES = 64 * 2**20
"""Bytes that the tokenizer may have besides."""


def main(file: Path, folder: Path, parent: int) -> int:
    """Convert `file` to a model folder. Return the exit status."""
    answer = os.dup(1)
    size = file.stat().st_size
    die_with_parent(parent)
    confine(
        seconds=BASE_SECONDS + SECONDS_PER_GIB * size // 2**30,
        memory=MEMORY + size,
        file_bytes=GROWTH * size + SETTINGS_BYTES,
    )
    try:
        write_folder(file, folder)
    except (LocalError, OSError) as error:
        found = str(error)
    except MemoryError:
        found = "it takes too much memory"
    except Exception as error:  # noqa: BLE001 - a file may cause any exception in the libraries that convert it
        found = f"{type(error).__name__}: {error}"
    else:
        return 0
    os.write(answer, found.encode(errors="replace"))
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
