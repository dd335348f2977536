"""A task, and its digest. If two nodes compute the same digest, they built the same task."""

import hashlib
from dataclasses import dataclass

import cbor2

from sapo_protocol.errors import LocalError


class TaskError(LocalError):
    """This node cannot build a task from a dataset, configuration or seed."""


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its reference answer, rebuilt on this machine."""

    dataset: str
    prompt: str
    answer: str
    """The dataset's own answer. For propositional_logic many answers are correct, and this is the dataset's example."""


def task_digest(prompt: str, answer: str) -> bytes:
    """Return the SHA-256 of the deterministic CBOR of [prompt, answer]."""
    return hashlib.sha256(cbor2.dumps([prompt, answer])).digest()
