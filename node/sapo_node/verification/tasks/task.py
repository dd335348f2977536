"""What a task is, and the digest by which two nodes see that they mean the same one."""

import hashlib
from dataclasses import dataclass

import cbor2

from sapo_protocol.errors import LocalError


class TaskError(LocalError):
    """A dataset, configuration or seed from which no task can be built here."""


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its reference answer, rebuilt on this machine."""

    dataset: str
    prompt: str
    answer: str
    """The dataset's own answer; for propositional_logic, where many are right, its example."""


def task_digest(prompt: str, answer: str) -> bytes:
    """SHA-256 of the deterministic CBOR of [question, answer]."""
    return hashlib.sha256(cbor2.dumps([prompt, answer])).digest()
