"""Gradient agreement: a peer whose correct completions the local gradient makes less probable is masked on that task.

The learner takes a trial step along the local gradient (`sapo_node.learner.lookahead`). It reports for each correct
external completion whether that step makes the completion more or less probable. One completion says little. If most
of a peer's correct completions to a task become less probable, what the peer teaches there does not pay for this
policy: a habit, a step left out, or a way of working that the policy has tried and failed with.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import FilterName
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter, GradientVote

WINDOW = 20
"""Rounds that count. A masked peer adds no votes, so after this many rounds its completions are used again."""
LEAST = 12
"""Correct completions of a peer to a task that must have been tried before the peer can be masked on the task."""


@dataclass(frozen=True, slots=True)
class _State:
    rounds: tuple[tuple[tuple[GradientVote, int], ...], ...]
    """For each round, each vote and its count."""


class GradientAgreementFilter(Filter):
    """Rejects a peer's correct completions to a task while the local gradient disagrees with most of those that it gave
    there.
    """

    name: ClassVar[FilterName] = "gradient-agreement"

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
        """Whether the node trains on that peer's correct completions to that task."""
        return (peer, dataset) not in self._closed

    def state_dict(self) -> dict[str, Any]:
        """What was heard in the last WINDOW rounds."""
        return to_object(_State(tuple(tuple(each.items()) for each in self._rounds)))

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
