"""The learner of a simulated node. torch takes seconds to import, and is imported only where there are models."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.bandit import Bandit
from sapo_adversary.simulator.pace import Meter
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.training.rollout import Policy
from sapo_protocol import Manifest


class Learner(Policy, Protocol):
    """A policy whose skill can be measured from outside."""

    meter: Meter

    def examine(self, scorer: SharedScorer, prompts: int, *, averaged: bool = False) -> dict[str, float]:
        """Return held-out pass@1 by dataset, over `prompts` prompts of each, of the averaged weights or of those that
        train; costs the meter nothing.
        """
        ...


def learner_for(
    simulation: Simulation, manifest: Manifest, number: int, policies: Path, scorer: SharedScorer
) -> Learner:
    """The learner of one node, by its number."""
    if simulation.learner == "bandit":
        return Bandit(simulation, manifest, number, scorer)
    from sapo_adversary.simulator.controls import model_for  # noqa: PLC0415

    return model_for(simulation, manifest, number, policies, scorer)


def set_up(simulation: Simulation) -> AbstractContextManager[None]:
    """The settings of the process while the learners of a simulation work."""
    if simulation.learner == "bandit":
        return nullcontext()
    from sapo_adversary.simulator.learning import one_core  # noqa: PLC0415

    return one_core()
