"""What `sapo-node doctor` reports of each thing that a node needs."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a thing is."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing."""

    name: str
    state: State
    text: str
    advice: str = ""
    """What to do, where anything should be done."""


def good(name: str, text: str) -> Finding:
    """A thing that is as it should be."""
    return Finding(name, State.GOOD, text)


def doubtful(name: str, text: str, advice: str) -> Finding:
    """A thing that may keep the node from what its operator wants."""
    return Finding(name, State.DOUBTFUL, text, advice)


def bad(name: str, error: Exception, advice: str = "") -> Finding:
    """A thing that keeps the node from running or from training."""
    return Finding(name, State.BAD, str(error), advice)
