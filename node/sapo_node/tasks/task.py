"""A task, and its digest. If two nodes compute the same digest, they built the same task."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import cbor2

from sapo_protocol import ASSIGNED_SEEDS, AnswerKind
from sapo_protocol.errors import LocalError


class TaskError(LocalError):
    """This node cannot build a task from a dataset, configuration or seed."""


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its reference answer, rebuilt on this machine."""

    dataset: str
    prompt: str
    answer: str
    """The dataset's own answer. Where many answers are correct this is the dataset's example."""
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Other facts of the item, for scorers. This node rebuilt them; the digest does not cover them."""
    answers: AnswerKind | None = None
    """The way to compare an answer, if the task is a row of a file."""


HELD_OUT_SEEDS = 2**30
"""Number of held-out seeds. The first is ASSIGNED_SEEDS."""
FIRST_EXAMPLE_SEED = ASSIGNED_SEEDS + HELD_OUT_SEEDS
"""The seed of the first worked example."""

Verdict = bool | Fraction
"""The result of a scorer: the answer is correct or not, or the exact share of it that is right, from 0 to 1."""

Scorer = Callable[[Task, str], Verdict]
"""Returns the verdict on an answer without blanks at its ends."""


def task_digest(prompt: str, answer: str) -> bytes:
    """Return the SHA-256 of the deterministic CBOR of [prompt, answer]."""
    return hashlib.sha256(cbor2.dumps([prompt, answer])).digest()
