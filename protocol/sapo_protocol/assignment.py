"""Tasks are assigned, not chosen: who asks, when, and how often decides which question it is.

Sender and receivers derive dataset and seed alike, so no question, answer or configuration travels, and text written
for one issuer's question answers nobody else's. What stays possible is choosing among at most `max_rounds` counters.
"""

import hashlib
from dataclasses import dataclass

from .cbor import encode
from .manifest import Manifest, TaskSpec

TASK_DOMAIN = "sapo/task/1"
ASSIGNED_SEEDS = 2**31
"""Seeds below this are for assigned tasks; those from here up are for held-out measurement, so the two never meet."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task of one round: which entry of the catalogue, with which seed."""

    spec: TaskSpec
    seed: int


def assign(manifest: Manifest, issuer: bytes, epoch: int, counter: int, k: int) -> Assignment:
    """Task `k` of the round (`epoch`, `counter`) of `issuer` (32-byte public key).

    SHA-256 of the deterministic CBOR of [domain, network id, issuer, epoch, counter, k]. Its first eight bytes,
    big-endian and modulo the sum of weights, pick the entry in catalogue order; the next four,
    modulo 2^31, are the seed.
    """
    digest = hashlib.sha256(encode([TASK_DOMAIN, manifest.network_id, issuer, epoch, counter, k])).digest()
    ticket = int.from_bytes(digest[:8], "big") % sum(spec.weight for spec in manifest.tasks)
    seed = int.from_bytes(digest[8:12], "big") % ASSIGNED_SEEDS
    for spec in manifest.tasks:
        if ticket < spec.weight:
            return Assignment(spec, seed)
        ticket -= spec.weight
    raise AssertionError("a ticket is below the sum of weights")
