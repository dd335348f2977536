"""Agreement: right answers that this policy's own answers teach it to unlearn teach the wrong way to be right.

The learner says of each right answer of others whether a step of own learning makes it more probable or less
(`sapo_node.learner.lookahead`). One text says little. But where most of a peer's in one task are spoken against, what
it teaches there does not pay here, whatever it is: a habit, a step left out, a way of working that this policy has
tried and failed with.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

WINDOW = 20
"""Rounds that count. Who is not heard has nothing that counts after them, and is heard again."""
LEAST = 12
"""Right answers of a peer to a task before anything is said of others."""


@dataclass(frozen=True, slots=True)
class GradientVote:
    """What own learning says to a right answer of a peer's."""

    peer: str
    dataset: str
    agrees: bool


class AgreementGate:
    """Keeps out a peer's right answers to a task while own learning speaks against most of what it gave there."""

    def __init__(self) -> None:
        self._rounds: deque[Counter[GradientVote]] = deque(maxlen=WINDOW)
        self._closed: frozenset[tuple[str, str]] = frozenset()

    def observe(self, heard: Iterable[GradientVote]) -> None:
        """Take in what the learner said in a round."""
        self._rounds.append(Counter(heard))
        said: Counter[GradientVote] = Counter()
        for each in self._rounds:
            said.update(each)
        self._closed = frozenset(
            (each.peer, each.dataset)
            for each, against in said.items()
            if not each.agrees and _mostly(against, against + said[GradientVote(each.peer, each.dataset, agrees=True)])
        )

    def admits(self, peer: str, dataset: str) -> bool:
        """Whether right answers of that peer to that task may teach."""
        return (peer, dataset) not in self._closed


def _mostly(against: int, answers: int) -> bool:
    """More than half, by twice the standard error of a coin that is thrown so often."""
    return answers >= LEAST and against - answers / 2 > sqrt(answers)
