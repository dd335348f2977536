"""The best weights so far, in a folder `best-00000150` of `tensor_folder` beside the checkpoints.

They are averaged weights: those of the evaluation on held-out prompts with the highest pass@1 by then, among those that
asked the model in the same way. The node decides which evaluation is the best, and which older best weights a batch
that it may replay still starts from.
"""

from collections.abc import Collection
from pathlib import Path

from torch import Tensor

from sapo_node.learner import tensor_folder
from sapo_node.learner.tensor_folder import CheckpointError, CorruptError, shapes, step_of
from sapo_node.learner.trainer import Trainer

_KIND = "best"
_FILE = "weights.safetensors"


def save(trainer: Trainer, root: Path, *, needed: Collection[int]) -> Path:
    """Write the averaged weights, and remove the best weights of all steps that are not needed.

    Raises CheckpointError if that fails; the folders on the disk stay as they are.
    """
    root.mkdir(parents=True, exist_ok=True)
    final = tensor_folder.folder_of(root, _KIND, trainer.step)
    if not tensor_folder.is_good(final, [_FILE]):
        weights = {name: value.contiguous().cpu() for name, value in trainer.average.items()}
        tensor_folder.write(trainer.policy, final, {_FILE: weights})
    tensor_folder.remove([folder for folder in found(root) if step_of(folder) not in {trainer.step, *needed}])
    return final


def load(trainer: Trainer, root: Path, step: int) -> dict[str, Tensor]:
    """Return the best weights of a step. Raises CheckpointError if they cannot be used."""
    folder = tensor_folder.folder_of(root, _KIND, step)
    try:
        return _read(trainer, folder)
    except CorruptError as problem:
        raise CheckpointError(f"{folder.name} {problem}") from problem


def peek(trainer: Trainer, root: Path) -> int | None:
    """Put the newest good best weights into the trainer, and return their step; None if there are none. This changes
    nothing on the disk, because the node may be running. Raises CheckpointError if they belong to another model.
    """
    for folder in found(root) if root.is_dir() else ():
        try:
            trainer.restart(_read(trainer, folder))
        except CorruptError:
            continue
        return step_of(folder)
    return None


def found(root: Path) -> list[Path]:
    """Return the folders of best weights, newest first."""
    return tensor_folder.found(root, _KIND)


def _read(trainer: Trainer, folder: Path) -> dict[str, Tensor]:
    [weights] = tensor_folder.read(trainer.policy, folder, [_FILE])
    if shapes(weights) != shapes(trainer.average):
        raise CorruptError("does not fit this version or model")
    return weights
