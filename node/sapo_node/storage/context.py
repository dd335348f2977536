"""What the parts of one node have in common."""

import random
from dataclasses import dataclass

from sapo_node.processes.clock import Clock
from sapo_node.storage.keys import Identity
from sapo_protocol import Manifest


@dataclass(frozen=True, slots=True)
class SwarmContext:
    """One node's place in one swarm. The parts of the node share the object, and with it the random generator."""

    manifest: Manifest
    """The rules of the swarm."""
    clock: Clock
    """Unix time, which says which epoch runs."""
    identity: Identity
    """The node's own key."""
    rng: random.Random
    """Every random choice of the node comes from here: a simulation hands in a seeded generator."""
