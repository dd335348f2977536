"""Agreement: right answers that this policy's own answers teach it to unlearn teach the wrong way to be right.

The learner says of each right answer of others whether a step of own learning makes it more probable or less
(`sapo_node.learner.lookahead`). One text says little. But where most of a peer's in one task are spoken against, what
it teaches there does not pay here, whatever it is: a habit, a step left out, a way of working that this policy has
tried and failed with.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import Gate
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter, GradientVote

WINDOW = 20
"""Rounds that count. Who is not heard has nothing that counts after them, and is heard again."""
LEAST = 12
"""Right answers of a peer to a task before anything is said of others."""


@dataclass(frozen=True, slots=True)
class _State:
    rounds: tuple[tuple[tuple[GradientVote, int], ...], ...]
    """Of each round, what was heard and how often."""


class AgreementGate(Filter):
    """Rejects a peer's correct completions to a task while the local gradient disagrees with most of those that it gave
    there.
    """

    name: ClassVar[Gate] = "agreement"

    def __init__(self) -> None:
        self._rounds: deque[Counter[GradientVote]] = deque(maxlen=WINDOW)
        self._closed: frozenset[tuple[str, str]] = frozenset()

    def observe(self, local: Sequence[LocalGroup], heard: Iterable[GradientVote]) -> None:
        """Take in what the learner said in a round."""
        del local
        self._rounds.append(Counter(heard))
        self._decide()

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Whether the peer of a group is not heard on the task of the group."""
        del text
        return not self.admits(group.peer, group.dataset)

    def admits(self, peer: str, dataset: str) -> bool:
        """Whether right answers of that peer to that task may teach."""
        return (peer, dataset) not in self._closed

    def state_dict(self) -> dict[str, Any]:
        """What was heard in the last WINDOW rounds."""
        state: dict[str, Any] = to_json(_State(tuple(tuple(each.items()) for each in self._rounds)))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As in the interface."""
        self._rounds.extend(Counter(dict(each)) for each in from_json(_State, state).rounds)
        self._decide()

    def _decide(self) -> None:
        said: Counter[GradientVote] = Counter()
        for each in self._rounds:
            said.update(each)
        self._closed = frozenset(
            (each.peer, each.dataset)
            for each, against in said.items()
            if not each.agrees and _mostly(against, against + said[GradientVote(each.peer, each.dataset, agrees=True)])
        )


def _mostly(against: int, answers: int) -> bool:
    """More than half, by twice the standard error of a coin that is thrown so often."""
    return answers >= LEAST and against - answers / 2 > sqrt(answers)
