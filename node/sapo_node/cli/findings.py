"""The result of one check of `sapo-node doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The result of a check in one word."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What `doctor` found when it checked one thing."""

    name: str
    state: State
    text: str
    advice: str = ""
    """What the operator should do; empty if nothing."""


def good(name: str, text: str) -> Finding:
    """Return a finding of a check that passed."""
    return Finding(name, State.GOOD, text)


def doubtful(name: str, text: str, advice: str) -> Finding:
    """Return a finding of a check that failed, although the node can run."""
    return Finding(name, State.DOUBTFUL, text, advice)


def bad(name: str, error: Exception, advice: str = "") -> Finding:
    """Return a finding of a check whose failure keeps the node from running or from training."""
    return Finding(name, State.BAD, str(error), advice)
