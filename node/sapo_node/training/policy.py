"""What training asks of the model that learns."""

from collections.abc import Collection, Sequence
from typing import Protocol

from sapo_node.groups.messages import Sampled, TrainReport, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.training.rollout import Answerer


class Policy(Answerer, Protocol):
    """The model that learns: its own process, in a running node."""

    @property
    def step(self) -> int:
        """The step of the weights as they are now."""
        ...

    async def generate(
        self, prompts: Sequence[Prompt], *, completions: int, max_tokens: int, seed: int, averaged: bool = False
    ) -> list[tuple[Sampled, ...]]:
        """G completions for each question, of the averaged weights or of those that train."""
        ...

    async def train(self, request: TrainRequest) -> TrainReport:
        """One update; its step is the one after the last. Raises RequestError where the step starts from best weights
        that are not there; nothing has changed then.
        """
        ...

    async def checkpoint(self) -> int:
        """Write the weights; the step they are of. The one before is kept as well."""
        ...

    async def keep_best(self, step: int, needed: Collection[int]) -> None:
        """Write the averaged weights of `step`, the one of now, as the best, and keep of the best weights before only
        those of the steps that are needed.
        """
        ...

    async def restore(self, step: int) -> None:
        """Go back to the checkpoint of a step, or for step 0 to the initial weights, and remove all later checkpoints
        and best weights. A policy at or before that step only removes them.

        A crash after this brings none of them back. Raises RequestError where the step cannot be restored; the weights
        are then as they were.
        """
        ...
