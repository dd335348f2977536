"""Task assignment (spec: manifest, TASK-1): issuer, epoch, counter and position determine the task.

Sender and receivers derive dataset and seed the same way, so a message holds no prompt, answer or configuration. A
completion of one issuer's task does not answer another issuer's task. An issuer chooses only the counter, among
`max_rounds`.
"""

import hashlib
from dataclasses import dataclass

from .cbor import encode
from .manifest import Manifest, TaskSpec

TASK_DOMAIN = "sapo/task/2"
ASSIGNED_SEEDS = 2**31
"""Assigned tasks have seeds below this; held-out measurement uses the seeds from here up, so the two are disjoint."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task of one round: an entry of the catalogue and a seed."""

    spec: TaskSpec
    seed: int


def assign(manifest: Manifest, issuer: bytes, epoch: int, counter: int, k: int) -> Assignment:
    """Return task `k` of the round (`epoch`, `counter`) of `issuer` (32-byte public key).

    SHA-256 of the deterministic CBOR of [domain, network id, issuer, epoch, counter, k]. Its first eight bytes,
    big-endian and modulo the sum of weights, pick the entry in catalogue order; the next four,
    modulo 2^31, are the seed.
    """
    digest = hashlib.sha256(encode([TASK_DOMAIN, manifest.network_id, issuer, epoch, counter, k])).digest()
    draw = int.from_bytes(digest[:8], "big") % sum(spec.weight for spec in manifest.tasks)
    seed = int.from_bytes(digest[8:12], "big") % ASSIGNED_SEEDS
    for spec in manifest.tasks:
        if draw < spec.weight:
            return Assignment(spec, seed)
        draw -= spec.weight
    raise AssertionError("the draw is below the sum of weights")
