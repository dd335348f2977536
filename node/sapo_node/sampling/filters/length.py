"""Length: a correct completion longer than the local correct ones would teach the policy to waste tokens.

Characters are known here, and tokens only in the learner. So the filter rejects by characters before the draw, and
bounds the tokens for the learner (`Bounds.tokens`). A character may be several tokens: without the second bound a peer
could make the learner pay for a text that is short in characters.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sapo_node.groups.codec import Count, from_json, to_object
from sapo_node.groups.messages import Bounds, FilterName
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.filters.interface import Filter

KEPT = 64
"""The newest local correct completions to a task that count."""
KNOWN = 16
"""Local correct completions to a task that must be known before an external one can be rejected."""
QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class _State:
    characters: Mapping[str, tuple[Count, ...]]
    """Lengths of the newest local correct completions, by task."""
    tokens: Mapping[str, tuple[Count, ...]]
    """Lengths of those with known tokens."""


class LengthFilter(Filter):
    """Rejects a correct completion longer than QUANTILE of the local correct ones to the same task."""

    name: ClassVar[FilterName] = "length"

    def __init__(self) -> None:
        self._characters, self._tokens = _Lengths(), _Lengths()

    def observe(self, local: Sequence[LocalGroup]) -> None:
        """Take in the local completions of a round."""
        for group in local:
            pairs = zip(group.completions, group.levels.correct, strict=True)
            correct = [each for each, is_correct in pairs if is_correct]
            self._characters.add(group.dataset, (len(each.text) for each in correct))
            self._tokens.add(group.dataset, (len(each.tokens) for each in correct if each.tokens))

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Return whether a text has more characters than QUANTILE of the local correct completions to the task."""
        return not self.admits(group.dataset, text)

    def admits(self, dataset: str, text: str) -> bool:
        """Return whether the node trains on a correct completion of this length."""
        longest = self._characters.longest.get(dataset)
        return longest is None or len(text) <= longest

    def bounds(self, group: VerifiedGroup, usual: Bounds) -> Bounds:
        """Bound the tokens by QUANTILE of the local correct completions to the task."""
        return replace(usual, tokens=self._tokens.longest.get(group.dataset))

    def state_dict(self) -> dict[str, Any]:
        """The lengths that count: at most KEPT for each task, in characters and in tokens."""
        return to_object(_State(self._characters.newest(), self._tokens.newest()))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state, as `Filter` says."""
        known = from_json(_State, state)
        for lengths, stored in ((self._characters, known.characters), (self._tokens, known.tokens)):
            for dataset, each in stored.items():
                lengths.add(dataset, each)


class _Lengths:
    """Lengths of local correct completions in one unit, by task."""

    def __init__(self) -> None:
        self._own: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))
        self.longest: dict[str, int] = {}
        """QUANTILE of them, by task, if enough are known."""

    def add(self, dataset: str, lengths: Iterable[int]) -> None:
        own = self._own[dataset]
        own.extend(lengths)
        if len(own) >= KNOWN:
            self.longest[dataset] = sorted(own)[int(QUANTILE * len(own))]

    def newest(self) -> dict[str, tuple[int, ...]]:
        return {dataset: tuple(own) for dataset, own in self._own.items()}
