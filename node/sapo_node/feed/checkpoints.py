"""Which step of the node a checkpoint of a trainer is of: a file in the checkpoint's folder says it."""

import shutil
from pathlib import Path

from sapo_protocol.files import read_bounded

_FILE = "swarm-step"
_MAX_BYTES = 32


def mark(checkpoint: Path | str, step: int) -> None:
    """Write into the folder of a checkpoint which step its weights are of."""
    (Path(checkpoint) / _FILE).write_text(str(step))


def newest(folder: Path | str, last: int | None = None) -> tuple[int, Path | None]:
    """Return the step and the folder of the newest marked checkpoint in a folder; (0, None) if there is none.

    Deletes the checkpoints after the step `last`, as `StepBack` asks.
    """
    found = {
        int(read_bounded(file, _MAX_BYTES, "mark of a checkpoint")): file.parent
        for file in Path(folder).glob(f"*/{_FILE}")
    }
    for step in sorted(found):
        if last is not None and step > last:
            shutil.rmtree(found.pop(step))
    step = max(found, default=0)
    return step, found.get(step)
