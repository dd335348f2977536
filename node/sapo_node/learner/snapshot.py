"""The state of a trainer as tensors: weights, averaged weights, Adam's state and torch's random state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from sapo_node.learner.trainer import Trainer

_RANDOM, _DENOMINATOR = "random", "denominator"
"""The keys of torch's random state and of `Trainer.denominator` in `Snapshot.optimizer`."""
_AVERAGE = "average"
"""The key of a parameter's average in `Snapshot.optimizer`, beside those of Adam's state."""

_ADAM = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of a parameter."""


class MisfitError(ValueError):
    """A snapshot is not one of a trainer; the message says why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a trainer needs to go on, bit for bit, from a step."""

    step: int
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    """By parameter its average and Adam's state; torch's random state; and the denominator of the loss."""

    @classmethod
    def of(cls, trainer: Trainer) -> "Snapshot":
        """The trainer's state. On a CPU it shares memory with the trainer, whose next step changes it."""
        optimizer = {_RANDOM: torch.get_rng_state(), _DENOMINATOR: _denominator(trainer)}
        for name, value in trainer.trained.items():
            kept = {**trainer.optimizer.state[value], _AVERAGE: trainer.average[name]}
            optimizer |= {f"{name}/{key}": held.detach().contiguous().cpu() for key, held in kept.items()}
        return cls(trainer.step, _weights(trainer), optimizer)

    def copy(self) -> "Snapshot":
        """The same in memory of its own."""
        weights = {name: value.clone() for name, value in self.weights.items()}
        return Snapshot(self.step, weights, {name: value.clone() for name, value in self.optimizer.items()})

    def require_fit(self, trainer: Trainer) -> None:
        """Raises MisfitError unless `put_into` can put the whole snapshot into the trainer."""
        if shapes(self.weights) != shapes(_weights(trainer)) or not _fits(self.optimizer, trainer):
            raise MisfitError("does not fit this version or model")
        try:
            torch.Generator().set_state(self.optimizer[_RANDOM])
        except RuntimeError as error:
            raise MisfitError("holds no random state") from error

    def put_into(self, trainer: Trainer) -> None:
        """Make this the trainer's state. Everything is copied: the tensors may be a file's."""
        with torch.no_grad():
            for name, value in trainer.trained.items():
                value.copy_(self.weights[name])
                trainer.average[name].copy_(self.optimizer[f"{name}/{_AVERAGE}"])
        trainer.publish()
        torch.set_rng_state(self.optimizer[_RANDOM])
        _restore_adam(trainer, self.optimizer)
        trainer.step = self.step


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.detach().contiguous().cpu() for name, value in trainer.trained.items()}


_Shapes: TypeAlias = dict[str, tuple[torch.Size, torch.dtype]]


def shapes(tensors: Mapping[str, Tensor]) -> _Shapes:
    """Return the shape and the number format of each tensor."""
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _fits(optimizer: Mapping[str, Tensor], trainer: Trainer) -> bool:
    """Whether these are a random state, a denominator, the averages of all parameters, and of each parameter all of
    Adam's state or none.
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
