"""Marks the checkpoints of a trainer with the step of the node: a file in the folder of each checkpoint."""

import shutil
from pathlib import Path

from sapo_protocol import LocalError
from sapo_protocol.files import read_bounded

_FILE = "swarm-step"
_MAX_BYTES = 32


def mark(checkpoint: Path | str, step: int) -> None:
    """Write the step of its weights into the folder of a checkpoint."""
    (Path(checkpoint) / _FILE).write_text(str(step))


def newest(folder: Path | str, last: int | None = None) -> tuple[int, Path | None]:
    """Return the step and the folder of the newest marked checkpoint in a folder; (0, None) if there is none.

    Deletes the checkpoints after the step `last`, as `StepBack` asks. Raises LocalError for a mark that is damaged.
    """
    found = {_step_in(file): file.parent for file in Path(folder).glob(f"*/{_FILE}")}
    for step in sorted(found):
        if last is not None and step > last:
            shutil.rmtree(found.pop(step))
    step = max(found, default=0)
    return step, found.get(step)


def _step_in(file: Path) -> int:
    """Return the step in a mark. Raises LocalError."""
    data = read_bounded(file, _MAX_BYTES, "mark of a checkpoint")
    if not data.isdigit():
        raise LocalError(f"{file} is no mark of a checkpoint; remove the folder {file.parent}")
    return int(data)
