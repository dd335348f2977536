"""Length: a correct completion longer than the local correct ones would teach the policy to waste tokens."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sapo_node.groups.codec import from_json, to_object
from sapo_node.groups.messages import FilterName
from sapo_node.groups.types import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter

KEPT = 64
"""The newest local correct completions to a task that count."""
KNOWN = 16
"""Local correct completions to a task that must be known before an external one can be rejected."""
QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class _State:
    lengths: Mapping[str, tuple[int, ...]]
    """Characters of the newest local correct completions, by task."""


class LengthFilter(Filter):
    """Rejects a correct completion longer than QUANTILE of the local correct ones to the same task."""

    name: ClassVar[FilterName] = "length"

    def __init__(self) -> None:
        self._own: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._longest: dict[str, int] = {}

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Take in the local completions of a round."""
        for group in local:
            correct = (len(c.text) for c, reward in zip(group.completions, group.rewards, strict=True) if reward)
            self._add(group.dataset, correct)

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Whether a text is longer than most own correct completions to the task of the group."""
        return not self.admits(group.dataset, text)

    def admits(self, dataset: str, text: str) -> bool:
        """Whether the node trains on a correct completion of this length."""
        longest = self._longest.get(dataset)
        return longest is None or len(text) <= longest

    def state_dict(self) -> dict[str, Any]:
        """The lengths that count: at most KEPT for each task."""
        return to_object(_State({dataset: tuple(own) for dataset, own in self._own.items()}))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As in the interface."""
        for dataset, lengths in from_json(_State, state).lengths.items():
            self._add(dataset, lengths)

    def _add(self, dataset: str, lengths: Iterable[int]) -> None:
        own = self._own[dataset]
        own.extend(lengths)
        if len(own) >= KNOWN:
            self._longest[dataset] = sorted(own)[int(QUANTILE * len(own))]
