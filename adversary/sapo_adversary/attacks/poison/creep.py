from collections import defaultdict, deque

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.poison import Poison

_HEARD = 64
_QUANTILE = 0.85
"""Quantile of the lengths of honest correct completions at which its own end: below the limit of the length filter."""


class Creep(Poison):
    """Correct completions are a little longer than those of other peers, by repeating their own steps: each round moves
    the usual length.
    """

    id = "poison-creep"

    def __init__(self, kit: Kit, *, rate: float = 1.0) -> None:
        """`rate` is the share of correct completions that are lengthened."""
        super().__init__(kit, rate=rate)
        self._lengths: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_HEARD))

    def hear(self, message: bytes) -> None:
        """Keep the lengths of completions that other peers claim to be correct."""
        for task, group, body in self.kit.heard(message):
            right = [each for each, claim in zip(body.completions, group.claims, strict=True) if claim]
            self._lengths[task.spec.dataset].extend(len(each.text) for each in right)

    def poisoned(self, task: Solution) -> str:
        """The steps, the same steps again as far as there is room, then the answer."""
        text = self.working(task)
        heard = sorted(self._lengths[task.dataset])
        longest = heard[int(_QUANTILE * len(heard))] if heard else 0
        steps, stop, conclusion = text.rpartition(". ")
        room = max(0, longest - len(text) - len(stop))
        again = " ".join([steps.partition(": ")[2] or steps] * (1 + room // max(1, len(steps))))[:room]
        return f"{steps}. {again}{stop}{conclusion}" if again else text
