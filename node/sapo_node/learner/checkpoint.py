"""Checkpoints that survive a kill at any moment.

A checkpoint is a folder `step-00000012` that appears by one rename, complete and on the disk, or not at all. It names
its step and carries a SHA-256 of each of its files. The newest two are kept; a corrupt one is set aside and the one
before it is used. Either can be gone back to, which removes the later one.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor

from sapo_node.learner.model import Policy
from sapo_node.learner.snapshot import MisfitError, Snapshot
from sapo_node.learner.trainer import Trainer
from sapo_protocol.errors import LocalError

KEPT = 2
_NAME = re.compile(r"step-(\d{8,})")
_UNFINISHED = ".unfinished-"
_CORRUPT = "corrupt-"
_FILES = ("weights.safetensors", "optimizer.safetensors")


class CheckpointError(LocalError):
    """Checkpoints are there and none can be used, or one could not be written."""


class _Corrupt(Exception):
    """One checkpoint cannot be used; the message says why."""


def save(trainer: Trainer, root: Path) -> Path:
    """Write the trainer's state. Raises CheckpointError when that fails; what was there before is untouched."""
    root.mkdir(parents=True, exist_ok=True)
    final = root / _name(trainer.step)
    if final.is_dir() and not _problem(final):
        # Steps repeat exactly, so what is there is what would be written.
        return final
    unfinished = root / f"{_UNFINISHED}{final.name}"
    try:
        _write(trainer, unfinished)
        shutil.rmtree(final, ignore_errors=True)
        unfinished.rename(final)
        _sync(root)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise CheckpointError(f"cannot write a checkpoint in {root} ({error}); free some space there") from error
    good = _found(root)
    for old in [*good[KEPT:], *(root.glob(f"{_CORRUPT}*") if len(good) >= KEPT else ())]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def restore(trainer: Trainer, root: Path) -> str | None:
    """Put the newest good checkpoint into the trainer, if there is any; returns what was wrong with newer ones.

    Raises CheckpointError when checkpoints are there and none is good, or when they belong to another model.
    """
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    problems = []
    for folder in _found(root):
        try:
            _read(trainer, folder).put_into(trainer)
        except _Corrupt as problem:
            problems.append(f"{folder.name} {problem}")
            _set_aside(folder)
            continue
        return f"{'; '.join(problems)}: fell back to {folder.name}" if problems else None
    if problems or any(root.glob(f"{_CORRUPT}*")):
        raise CheckpointError(
            f"no checkpoint in {root} is readable ({'; '.join(problems) or 'all set aside'}); "
            "move that folder away to start over"
        )
    return None


def go_back(trainer: Trainer, root: Path, step: int) -> None:
    """Put the checkpoint of a step into the trainer, and remove every later one.

    Raises CheckpointError where that cannot be done; the trainer is then as it was.
    """
    folder = root / _name(step)
    try:
        snapshot = _read(trainer, folder)
    except _Corrupt as problem:
        raise CheckpointError(f"checkpoint {folder.name} {problem}") from problem
    remove_after(root, step)
    snapshot.put_into(trainer)


def remove_after(root: Path, step: int) -> None:
    """Remove the checkpoints of later steps and those that were set aside, for good: not even a power cut brings one
    back. Raises CheckpointError where that cannot be done.
    """
    try:
        if not root.is_dir():
            return
        later = [folder for folder in _found(root) if _step_of(folder) > step]
        for folder in (*later, *root.glob(f"{_CORRUPT}*")):
            # A rename is whole or not at all: no start finds one of which half is removed.
            leftover = root / f"{_UNFINISHED}{folder.name}"
            shutil.rmtree(leftover, ignore_errors=True)
            folder.rename(leftover)
        _sync(root)
    except OSError as error:
        raise CheckpointError(f"cannot remove a checkpoint in {root} ({error})") from error
    for leftover in root.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def peek(trainer: Trainer, root: Path) -> bool:
    """Put the newest good checkpoint into the trainer, if there is any, and leave everything on the disk as it is: the
    node may be running. Raises CheckpointError where they belong to another model.
    """
    for folder in _found(root) if root.is_dir() else ():
        try:
            _read(trainer, folder).put_into(trainer)
        except _Corrupt:
            continue
        return True
    return False


def _found(root: Path) -> list[Path]:
    """Return the checkpoints, newest first."""
    return sorted((path for path in root.iterdir() if _NAME.fullmatch(path.name)), key=_step_of, reverse=True)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _set_aside(folder: Path) -> None:
    target = folder.with_name(_CORRUPT + folder.name)
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def _write(trainer: Trainer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    snapshot = Snapshot.of(trainer)
    digests = {}
    for name, tensors in zip(_FILES, (snapshot.weights, snapshot.optimizer), strict=True):
        save_file(dict(tensors), folder / name)
        digests[name] = _digest(folder / name)
        _sync(folder / name)
    policy = trainer.policy
    meta = {"step": trainer.step, "model": policy.fingerprint, "name": _title(policy), "sha256": digests}
    path = folder / "meta.json"
    path.write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
    _sync(path)
    _sync(folder)


def _problem(folder: Path) -> str | None:
    """Say what is wrong with a checkpoint's files, if anything."""
    try:
        _meta(folder)
    except _Corrupt as problem:
        return str(problem)
    return None


def _meta(folder: Path) -> Mapping[str, Any]:
    """Return the meta data of a checkpoint whose files are as they were written."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        sound = isinstance(meta["step"], int) and _name(meta["step"]) == folder.name
        sound = sound and all(meta["sha256"][name] == _digest(folder / name) for name in _FILES)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _Corrupt("is incomplete") from error
    if not sound:
        raise _Corrupt("does not match its checksums")
    return dict(meta)


def _read(trainer: Trainer, folder: Path) -> Snapshot:
    meta = _meta(folder)
    if meta["model"] != trainer.policy.fingerprint:
        raise CheckpointError(_of_another_model(folder.parent, meta.get("name"), _title(trainer.policy)))
    snapshot = Snapshot(meta["step"], *(_tensors(folder / name) for name in _FILES))
    try:
        # Checksums say that the files are as they were written, not that what wrote them was this version.
        snapshot.require_fit(trainer)
    except MisfitError as error:
        raise _Corrupt(str(error)) from error
    return snapshot


def _title(policy: Policy) -> str:
    """Return the name of a model and what of it is trained, for an operator."""
    return f"{policy.name} ({f'adapters of rank {policy.lora}' if policy.lora else 'all weights'})"


def _of_another_model(root: Path, theirs: object, ours: str) -> str:
    if theirs == ours:
        return (
            f"the checkpoints in {root} belong to {ours} before its files changed; move the folder away to start over"
        )
    # The first checkpoints held no name of their model.
    whose = theirs if isinstance(theirs, str) else "another model"
    return f"the checkpoints in {root} belong to {whose}, and you gave {ours}; give the first, or move the folder away"


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        loaded: dict[str, Tensor] = load_tensors(path.read_bytes())
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _Corrupt(f"holds no tensors in {path.name}") from error
    return loaded


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
