"""Checkpoints that survive a kill at any moment.

A checkpoint is a folder `step-00000012` that appears by one rename, complete and on the disk, or not at all. It names
its step and carries a SHA-256 of each of its files. The newest two are kept; a corrupt one is set aside and the one
before it is used.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor

from sapo_node.learner.model import Policy
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
    final = root / f"step-{trainer.step:08d}"
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
            _read(trainer, folder)
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


def peek(trainer: Trainer, root: Path) -> bool:
    """Put the newest good checkpoint into the trainer, if there is any, and leave everything on the disk as it is: the
    node may be running. Raises CheckpointError where they belong to another model.
    """
    for folder in _found(root) if root.is_dir() else ():
        try:
            _read(trainer, folder)
        except _Corrupt:
            continue
        return True
    return False


def _found(root: Path) -> list[Path]:
    """Return the checkpoints, newest first."""
    named = [(int(match[1]), path) for path in root.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(named, reverse=True)]


def _set_aside(folder: Path) -> None:
    target = folder.with_name(_CORRUPT + folder.name)
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def _write(trainer: Trainer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    contents = (_weights(trainer), _optimizer(trainer))
    digests = {}
    for name, tensors in zip(_FILES, contents, strict=True):
        save_file(tensors, folder / name)
        digests[name] = _digest(folder / name)
        _sync(folder / name)
    policy = trainer.policy
    meta = {"step": trainer.step, "model": policy.fingerprint, "name": _title(policy), "sha256": digests}
    path = folder / "meta.json"
    path.write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
    _sync(path)
    _sync(folder)


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.detach().contiguous().cpu() for name, value in trainer.trained.items()}


def _optimizer(trainer: Trainer) -> dict[str, Tensor]:
    """Return Adam's state by parameter, and torch's random state."""
    tensors = {"random": torch.get_rng_state()}
    for name, value in trainer.trained.items():
        for key, held in trainer.optimizer.state[value].items():
            tensors[f"{name}/{key}"] = held.detach().contiguous().cpu()
    return tensors


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
        sound = isinstance(meta["step"], int) and f"step-{meta['step']:08d}" == folder.name
        sound = sound and all(meta["sha256"][name] == _digest(folder / name) for name in _FILES)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _Corrupt("is incomplete") from error
    if not sound:
        raise _Corrupt("does not match its checksums")
    return dict(meta)


def _read(trainer: Trainer, folder: Path) -> None:
    meta = _meta(folder)
    if meta["model"] != trainer.policy.fingerprint:
        raise CheckpointError(_of_another_model(folder.parent, meta.get("name"), _title(trainer.policy)))
    weights, optimizer = (_tensors(folder / name) for name in _FILES)
    # Checksums say that the files are as they were written, not that what wrote them was this version.
    if _shapes(weights) != _shapes(_weights(trainer)) or not _fits(optimizer, trainer):
        raise _Corrupt("does not fit this version or model")
    try:
        torch.Generator().set_state(optimizer["random"])
    except RuntimeError as error:
        raise _Corrupt("holds no random state") from error
    with torch.no_grad():
        for name, value in trainer.trained.items():
            value.copy_(weights[name])
    trainer.publish()
    torch.set_rng_state(optimizer.pop("random"))
    _restore_adam(trainer, optimizer)
    trainer.step = meta["step"]


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


_Shapes: TypeAlias = dict[str, tuple[torch.Size, torch.dtype]]


def _shapes(tensors: Mapping[str, Tensor]) -> _Shapes:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _fits(optimizer: Mapping[str, Tensor], trainer: Trainer) -> bool:
    """Whether these are a random state and, for each parameter, all of Adam's state or none."""
    possible = {"random": torch.get_rng_state()}
    for name, value in trainer.trained.items():
        adam = {f"{name}/step": torch.tensor(0.0), f"{name}/exp_avg": value, f"{name}/exp_avg_sq": value}
        if not adam.keys().isdisjoint(optimizer):
            possible |= adam
    return _shapes(optimizer) == _shapes(possible)


def _restore_adam(trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for index, name in enumerate(trainer.trained):
        held = {key.rsplit("/", 1)[1]: value for key, value in tensors.items() if key.rsplit("/", 1)[0] == name}
        if held:
            state[index] = held
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
