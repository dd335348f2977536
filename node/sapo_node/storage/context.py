"""The swarm, clock, key and random generator that the parts of one node share."""

import random
from dataclasses import dataclass

from sapo_node.processes.clock import Clock
from sapo_node.storage.keys import Identity
from sapo_protocol import Manifest


@dataclass(frozen=True, slots=True)
class SwarmContext:
    """One node in one swarm. All parts of the node share this object, and with it the random generator."""

    manifest: Manifest
    """The rules of the swarm."""
    clock: Clock
    """Unix time, from which the node computes the epoch."""
    identity: Identity
    """The node's own key."""
    rng: random.Random
    """Makes every random choice of the node. A simulation passes a seeded generator."""
