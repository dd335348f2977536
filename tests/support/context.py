"""What the parts of one node have in common, for tests of single parts."""

import random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.processes.clock import Clock, SystemClock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.keys import Identity
from sapo_protocol import Manifest

KEY = Ed25519PrivateKey.from_private_bytes(bytes([255]) * 32)
"""The node's key, where a test does not name another."""


def context_of(
    manifest: Manifest, rng: random.Random, *, clock: Clock | None = None, key: Ed25519PrivateKey = KEY
) -> SwarmContext:
    """A node of this swarm; its time is the machine's unless a clock is given."""
    return SwarmContext(manifest, clock or SystemClock(), Identity(key), rng)
