"""Checkpoints that survive a kill at any moment: weights, averaged weights, Adam's state and torch's random state.

A checkpoint is a folder `step-00000012` of `tensor_folder`. The node keeps the newest two. It sets a corrupt one aside,
and uses the one before it. Going back to one removes later ones, and the best weights of later steps.

Best weights lie beside the checkpoints, in a folder `best-00000150`. They are averaged weights: those of the evaluation
on held-out prompts with the highest pass@1 by then, among those that asked the model in the same way. The node decides
which evaluation is the best, and which older best weights a batch that it may replay still starts from.
"""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sapo_node.learner import tensor_folder
from sapo_node.learner.tensor_folder import CheckpointError, CorruptError, shapes, step_of
from sapo_node.learner.trainer import Trainer

KEPT = 2
_KIND, _BEST = "step", "best"
_CORRUPT = "corrupt-"
_FILES = ("weights.safetensors", "optimizer.safetensors")
_BEST_FILE = "weights.safetensors"
_RANDOM, _DENOMINATOR = "random", "denominator"
"""The keys of torch's random state and of `Trainer.denominator` in `Snapshot.optimizer`."""
_AVERAGE = "average"
"""The key of a parameter's average in `Snapshot.optimizer`, beside those of Adam's state."""

_ADAM = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of a parameter."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state from which a trainer goes on, bit for bit."""

    step: int
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    """The average and Adam's state of each parameter, torch's random state, and the denominator of the loss."""

    @classmethod
    def of(cls, trainer: Trainer) -> "Snapshot":
        """Return the trainer's state. On a CPU it shares memory with the trainer, whose next step changes it."""
        optimizer = {_RANDOM: torch.get_rng_state(), _DENOMINATOR: _denominator(trainer)}
        for name, value in trainer.trained.items():
            kept = {**trainer.optimizer.state[value], _AVERAGE: trainer.average[name]}
            optimizer |= {f"{name}/{key}": held.detach().contiguous().cpu() for key, held in kept.items()}
        return cls(trainer.step, _weights(trainer), optimizer)

    def copy(self) -> "Snapshot":
        """Return a copy in memory of its own."""
        weights = {name: value.clone() for name, value in self.weights.items()}
        return Snapshot(self.step, weights, {name: value.clone() for name, value in self.optimizer.items()})

    def require_fit(self, trainer: Trainer) -> None:
        """Raises CorruptError unless `put_into` can put the whole snapshot into the trainer."""
        if shapes(self.weights) != shapes(_weights(trainer)) or not _fits(self.optimizer, trainer):
            raise CorruptError("does not fit this version or model")
        try:
            torch.Generator().set_state(self.optimizer[_RANDOM])
        except RuntimeError as error:
            raise CorruptError("holds no random state") from error

    def put_into(self, trainer: Trainer) -> None:
        """Copy this into the trainer. The tensors may be mapped from a file."""
        with torch.no_grad():
            for name, value in trainer.trained.items():
                value.copy_(self.weights[name])
                trainer.average[name].copy_(self.optimizer[f"{name}/{_AVERAGE}"])
        trainer.publish()
        torch.set_rng_state(self.optimizer[_RANDOM])
        _restore_adam(trainer, self.optimizer)
        trainer.step = self.step


def save(trainer: Trainer, root: Path) -> Path:
    """Write the trainer's state. Raises CheckpointError if that fails; the checkpoints on the disk stay as they are."""
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
    """Put the newest good checkpoint into the trainer, if there is one. Return why newer ones were not used.

    Raises CheckpointError if there are checkpoints and none is good, or if they belong to another model.
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

    Raises CheckpointError if that fails; the trainer then stays as it is.
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
    even a power cut brings one back. Raises CheckpointError if that fails.
    """
    if not root.is_dir():
        return
    later = [folder for folder in (*_found(root), *_found_best(root)) if step_of(folder) > step]
    tensor_folder.remove([*later, *root.glob(f"{_CORRUPT}*")])


def peek(trainer: Trainer, root: Path) -> bool:
    """Put the newest good checkpoint into the trainer. Return false if there is none. This changes nothing on the disk,
    because the node may be running. Raises CheckpointError if the checkpoints belong to another model.
    """
    for folder in _found(root) if root.is_dir() else ():
        try:
            _read(trainer, folder).put_into(trainer)
        except CorruptError:
            continue
        return True
    return False


def save_best(trainer: Trainer, root: Path, *, needed: Collection[int]) -> Path:
    """Write the averaged weights, and remove the best weights of all steps that are not needed.

    Raises CheckpointError if that fails; the folders on the disk stay as they are.
    """
    root.mkdir(parents=True, exist_ok=True)
    final = tensor_folder.folder_of(root, _BEST, trainer.step)
    if not tensor_folder.is_good(final, [_BEST_FILE]):
        weights = {name: value.contiguous().cpu() for name, value in trainer.average.items()}
        tensor_folder.write(trainer.policy, final, {_BEST_FILE: weights})
    tensor_folder.remove([folder for folder in _found_best(root) if step_of(folder) not in {trainer.step, *needed}])
    return final


def load_best(trainer: Trainer, root: Path, step: int) -> dict[str, Tensor]:
    """Return the best weights of a step. Raises CheckpointError if they cannot be used."""
    folder = tensor_folder.folder_of(root, _BEST, step)
    try:
        return _read_best(trainer, folder)
    except CorruptError as problem:
        raise CheckpointError(f"{folder.name} {problem}") from problem


def peek_best(trainer: Trainer, root: Path) -> int | None:
    """Put the newest good best weights into the trainer, and return their step; None if there are none. This changes
    nothing on the disk, because the node may be running. Raises CheckpointError if they belong to another model.
    """
    for folder in _found_best(root) if root.is_dir() else ():
        try:
            trainer.restart(_read_best(trainer, folder))
        except CorruptError:
            continue
        return step_of(folder)
    return None


def _found(root: Path) -> list[Path]:
    """Return the checkpoints, newest first."""
    return tensor_folder.found(root, _KIND)


def _found_best(root: Path) -> list[Path]:
    """Return the folders of best weights, newest first."""
    return tensor_folder.found(root, _BEST)


def _set_aside(folder: Path) -> None:
    target = folder.with_name(_CORRUPT + folder.name)
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def _read(trainer: Trainer, folder: Path) -> Snapshot:
    snapshot = Snapshot(step_of(folder), *tensor_folder.read(trainer.policy, folder, _FILES))
    # Checksums say that the files are as they were written, not that what wrote them was this version.
    snapshot.require_fit(trainer)
    return snapshot


def _read_best(trainer: Trainer, folder: Path) -> dict[str, Tensor]:
    [weights] = tensor_folder.read(trainer.policy, folder, [_BEST_FILE])
    if shapes(weights) != shapes(trainer.average):
        raise CorruptError("does not fit this version or model")
    return weights


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.detach().contiguous().cpu() for name, value in trainer.trained.items()}


def _fits(optimizer: Mapping[str, Tensor], trainer: Trainer) -> bool:
    """Return whether these are a random state, a denominator, the averages of all parameters, and for each parameter
    all of Adam's state or none.
    """
    possible = {_RANDOM: torch.get_rng_state(), _DENOMINATOR: _denominator(trainer)}
    possible |= {f"{name}/{_AVERAGE}": value for name, value in trainer.average.items()}
    for name, value in trainer.trained.items():
        adam = {f"{name}/step": torch.tensor(0.0), f"{name}/exp_avg": value, f"{name}/exp_avg_sq": value}
        if not adam.keys().isdisjoint(optimizer):
            possible |= adam
    return shapes(optimizer) == shapes(possible)


def _denominator(trainer: Trainer) -> Tensor:
    return torch.tensor(trainer.denominator, dtype=torch.float64)


def _restore_adam(trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
    held = trainer.optimizer.state
    # The gradients to come are so many times as large as those before, if the operator changed the size of a round.
    scale = float(tensors[_DENOMINATOR]) / trainer.denominator
    for name, value in trainer.trained.items():
        held.pop(value, None)  # its memory is free for the copy
        parts = {key: tensors[f"{name}/{key}"] for key in _ADAM if f"{name}/{key}" in tensors}
        if parts:
            # Adam counts its steps on the CPU.
            held[value] = {
                key: part.to("cpu" if key == "step" else value.device, copy=True) for key, part in parts.items()
            }
            held[value]["exp_avg"].mul_(scale)
            held[value]["exp_avg_sq"].mul_(scale**2)
