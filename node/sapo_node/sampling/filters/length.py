"""Length: a right answer that is longer than this policy's own right ones teaches to spend tokens on nothing."""

from collections import defaultdict, deque
from collections.abc import Iterable

from sapo_node.groups.types import LocalGroup

KEPT = 64
"""Own right answers to a task that count, those of late."""
KNOWN = 16
"""Own right answers to a task before anything is said of others'."""
QUANTILE = 0.9


class LengthGate:
    """Keeps out right answers that are longer than most own right ones to the same task."""

    def __init__(self) -> None:
        self._own: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._longest: dict[str, int] = {}

    def observe(self, local: Iterable[LocalGroup]) -> None:
        """Take in a round's own answers."""
        for group in local:
            own = self._own[group.dataset]
            own.extend(len(c.text) for c, reward in zip(group.completions, group.rewards, strict=True) if reward)
            if len(own) >= KNOWN:
                self._longest[group.dataset] = sorted(own)[int(QUANTILE * len(own))]

    def admits(self, dataset: str, text: str) -> bool:
        """Whether a right answer may teach."""
        longest = self._longest.get(dataset)
        return longest is None or len(text) <= longest
