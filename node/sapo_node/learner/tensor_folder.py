"""Folders of tensor files that survive a kill at any moment.

A folder appears by one rename, complete and on the disk, or not at all. Its name ends in its step. Its meta.json names
the step, the model, and the SHA-256 of each of its files.
"""

import json
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sapo_node.groups.messages import trained_part
from sapo_node.learner.model import Policy
from sapo_node.storage.files import sync
from sapo_protocol.errors import LocalError
from sapo_protocol.files import read_json, sha256_of

UNFINISHED = ".unfinished-"
_META = "meta.json"
_MAX_META_BYTES = 65_536


class CheckpointError(LocalError):
    """No checkpoint or best weights can be used, or they cannot be written."""


class CorruptError(Exception):
    """A folder cannot be used; the message says why."""


def folder_of(root: Path, kind: str, step: int) -> Path:
    """Return the folder of a kind and a step. It may not exist."""
    return root / f"{kind}-{step:08d}"


def found(root: Path, kind: str) -> list[Path]:
    """Return the folders of a kind, newest first."""
    name = re.compile(rf"{kind}-(\d{{8,}})")
    return sorted((path for path in root.iterdir() if name.fullmatch(path.name)), key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """Return the step at the end of a folder's name."""
    return int(folder.name.rpartition("-")[2])


def write(policy: Policy, final: Path, files: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write the files of a step, and replace the folder of that step. Raises CheckpointError if that fails; the old
    folder then stays as it is.
    """
    root = final.parent
    unfinished = root / f"{UNFINISHED}{final.name}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _fill(unfinished, policy, step_of(final), files)
        shutil.rmtree(final, ignore_errors=True)
        unfinished.rename(final)
        sync(root)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise CheckpointError(f"cannot write {final.name} in {root} ({error}); free some space there") from error


def remove(folders: Collection[Path]) -> None:
    """Remove folders for good: not even a power cut brings one back. Raises CheckpointError if that fails."""
    for folder in folders:
        # A rename is whole or not at all: no start finds a folder of which half is removed.
        leftover = folder.with_name(f"{UNFINISHED}{folder.name}")
        try:
            shutil.rmtree(leftover, ignore_errors=True)
            folder.rename(leftover)
            sync(folder.parent)
        except OSError as error:
            raise CheckpointError(f"cannot remove a checkpoint in {folder.parent} ({error})") from error
        shutil.rmtree(leftover, ignore_errors=True)


def remove_unfinished(root: Path) -> None:
    """Remove the remains of a folder whose writing or removal was killed."""
    for leftover in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def is_good(folder: Path, names: Collection[str]) -> bool:
    """Return whether the files of a folder are as they were written."""
    try:
        _meta(folder, names)
    except CorruptError:
        return False
    return True


def read(policy: Policy, folder: Path, names: Collection[str]) -> list[dict[str, Tensor]]:
    """Return the tensors of the named files, in this order. They are mapped from the files, so a start needs no memory
    for a second copy of a trainer's state: the caller copies them, and writes to none.

    Raises CorruptError if a file is not as it was written, and CheckpointError if the files belong to another model.
    """
    meta = _meta(folder, names)
    if meta["model"] != policy.fingerprint:
        raise CheckpointError(_of_another_model(folder.parent, meta["name"], _title(policy)))
    return [_tensors(folder / name) for name in names]


_Shapes: TypeAlias = dict[str, tuple[torch.Size, torch.dtype]]


def shapes(tensors: Mapping[str, Tensor]) -> _Shapes:
    """Return the shape and the number format of each tensor."""
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _fill(folder: Path, policy: Policy, step: int, files: Mapping[str, Mapping[str, Tensor]]) -> None:
    digests = {}
    for name, tensors in files.items():
        save_file(dict(tensors), folder / name)
        digests[name] = _digest(folder / name)
        sync(folder / name)
    meta = {"step": step, "model": policy.fingerprint, "name": _title(policy), "sha256": digests}
    path = folder / _META
    path.write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
    sync(path)
    sync(folder)


def _meta(folder: Path, names: Collection[str]) -> Mapping[str, object]:
    try:
        meta = read_json(folder / _META, _MAX_META_BYTES, "description of a checkpoint")
        sound = isinstance(meta["step"], int) and meta["step"] == step_of(folder)
        sound = sound and all(meta["sha256"][name] == _digest(folder / name) for name in names)
        meta["model"], meta["name"]
    except (LocalError, OSError, KeyError, TypeError) as error:
        raise CorruptError("is incomplete") from error
    if not sound:
        raise CorruptError("does not match its checksums")
    return dict(meta)


def _title(policy: Policy) -> str:
    """Return the name of a model and what of it is trained, for an operator."""
    return f"{policy.name} ({trained_part(policy.lora, policy.lora_layers)})"


def _of_another_model(root: Path, theirs: object, ours: str) -> str:
    if theirs == ours:
        return (
            f"the checkpoints in {root} belong to {ours} before its files changed; move the folder away to start over"
        )
    return (
        f"the checkpoints in {root} belong to {theirs}, and you gave {ours}. Start with the model and the options of "
        f"these checkpoints, or move the folder away to start over"
    )


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        loaded: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CorruptError(f"holds no tensors in {path.name}") from error
    return loaded


def _digest(path: Path) -> str:
    return sha256_of(path, "file of a checkpoint").hex()
