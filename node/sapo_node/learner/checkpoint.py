"""Checkpoints that survive a kill at any moment.

A checkpoint is a folder `step-00000012` of `tensor_folder`. The newest two are kept; a corrupt one is set aside and the
one before it is used. Either can be gone back to, which removes the later one, and the best weights of later steps
(`best`).
"""

import shutil
from pathlib import Path

from sapo_node.learner import best, tensor_folder
from sapo_node.learner.snapshot import MisfitError, Snapshot
from sapo_node.learner.tensor_folder import CheckpointError, CorruptError, step_of
from sapo_node.learner.trainer import Trainer

KEPT = 2
_KIND = "step"
_CORRUPT = "corrupt-"
_FILES = ("weights.safetensors", "optimizer.safetensors")


def save(trainer: Trainer, root: Path) -> Path:
    """Write the trainer's state. Raises CheckpointError when that fails; what was there before is untouched."""
    root.mkdir(parents=True, exist_ok=True)
    final = tensor_folder.folder_of(root, _KIND, trainer.step)
    if tensor_folder.is_good(final, _FILES):
        # Steps repeat exactly, so what is there is what would be written.
        return final
    snapshot = Snapshot.of(trainer)
    tensors = (snapshot.weights, snapshot.optimizer)
    tensor_folder.write(trainer.policy, final, dict(zip(_FILES, tensors, strict=True)))
    good = _found(root)
    for old in [*good[KEPT:], *(root.glob(f"{_CORRUPT}*") if len(good) >= KEPT else ())]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def restore(trainer: Trainer, root: Path) -> str | None:
    """Put the newest good checkpoint into the trainer, if there is any; returns what was wrong with newer ones.

    Raises CheckpointError when checkpoints are there and none is good, or when they belong to another model.
    """
    root.mkdir(parents=True, exist_ok=True)
    tensor_folder.remove_unfinished(root)
    problems = []
    for folder in _found(root):
        try:
            _read(trainer, folder).put_into(trainer)
        except CorruptError as problem:
            problems.append(f"{folder.name} {problem}")
            _set_aside(folder)
            continue
        return f"{'; '.join(problems)}: fell back to {folder.name}" if problems else None
    if problems or any(root.glob(f"{_CORRUPT}*")):
        raise CheckpointError(
            f"no checkpoint in {root} is readable ({'; '.join(problems) or 'all set aside'}); "
            "restore them from a backup, or move that folder away: the node then goes on from its first weights"
        )
    return None


def go_back(trainer: Trainer, root: Path, step: int) -> None:
    """Put the checkpoint of a step into the trainer, and remove every later one.

    Raises CheckpointError where that cannot be done; the trainer is then as it was.
    """
    folder = tensor_folder.folder_of(root, _KIND, step)
    try:
        snapshot = _read(trainer, folder)
    except CorruptError as problem:
        raise CheckpointError(f"checkpoint {folder.name} {problem}") from problem
    remove_after(root, step)
    snapshot.put_into(trainer)


def remove_after(root: Path, step: int) -> None:
    """Remove the checkpoints and best weights of later steps, and the checkpoints that were set aside, for good: not
    even a power cut brings one back. Raises CheckpointError where that cannot be done.
    """
    if not root.is_dir():
        return
    later = [folder for folder in (*_found(root), *best.found(root)) if step_of(folder) > step]
    tensor_folder.remove([*later, *root.glob(f"{_CORRUPT}*")])


def peek(trainer: Trainer, root: Path) -> bool:
    """Put the newest good checkpoint into the trainer, if there is any, and leave everything on the disk as it is: the
    node may be running. Raises CheckpointError where they belong to another model.
    """
    for folder in _found(root) if root.is_dir() else ():
        try:
            _read(trainer, folder).put_into(trainer)
        except CorruptError:
            continue
        return True
    return False


def _found(root: Path) -> list[Path]:
    """Return the checkpoints, newest first."""
    return tensor_folder.found(root, _KIND)


def _set_aside(folder: Path) -> None:
    target = folder.with_name(_CORRUPT + folder.name)
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def _read(trainer: Trainer, folder: Path) -> Snapshot:
    snapshot = Snapshot(step_of(folder), *tensor_folder.read(trainer.policy, folder, _FILES))
    try:
        # Checksums say that the files are as they were written, not that what wrote them was this version.
        snapshot.require_fit(trainer)
    except MisfitError as error:
        raise CorruptError(str(error)) from error
    return snapshot
