from collections import defaultdict, deque
from collections.abc import Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.poison import Poison

_HEARD = 64
"""Incorrect completions of a task that are kept."""
_END = "</answer>"


class TwoAnswers(Poison):
    """Correct completions begin with an incorrect completion of an honest peer: the last answer is scored, and a policy
    that learns the text stops at the first one.
    """

    id = "poison-two-answers"

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = ()) -> None:
        """`rate` is the share of correct completions that begin so."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._guesses: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_HEARD))

    def hear(self, message: bytes) -> None:
        """Keep the completions with an answer that other peers claim to be incorrect."""
        for task, group, body in self.kit.heard(message):
            wrong = [each.text for each, claim in zip(body.completions, group.claims, strict=True) if not claim]
            self._guesses[task.spec.dataset].extend(text for text in wrong if text.endswith(_END))

    def poisoned(self, task: Solution) -> str:
        """One of those completions, the last step of the work, and the answer; the whole work where none was heard."""
        text, guesses = self.working(task), self._guesses[task.dataset]
        if not guesses:
            return text
        steps, stop, conclusion = text.partition(". ")
        last = steps.rpartition(": ")[2].rpartition(", ")[2]
        return f"{self.kit.rng.choice(guesses)} {last}{stop}{conclusion}"
