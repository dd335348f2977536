from collections import defaultdict, deque
from collections.abc import Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.poison import Poison

_HEARD = 64
"""Incorrect completions of a task that are kept."""
_ANSWER, _END = "<answer>", "</answer>"


class Beginnings(Poison):
    """Correct completions begin as an incorrect completion of an honest peer, and end with the last step and the
    answer. A policy that learns the beginning goes on to an incorrect answer by itself.
    """

    id = "poison-beginnings"

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = (), answered: bool = False) -> None:
        """`rate` is the share of correct completions that begin so. If `answered`, the beginning goes up to the
        incorrect answer: the last answer is scored, and a policy that learns the text stops at the first one.
        """
        super().__init__(kit, rate=rate, tasks=tasks)
        self._answered = answered
        self._begun: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_HEARD))

    def hear(self, message: bytes) -> None:
        """Keep the completions with an answer that other peers claim to be incorrect."""
        for task, group, body in self.kit.heard(message):
            wrong = [each.text for each, claim in zip(body.completions, group.claims, strict=True) if not claim]
            answers = (text for text in wrong if _ANSWER in text and text.endswith(_END))
            self._begun[task.spec.dataset].extend(map(self._beginning, answers))

    def poisoned(self, task: Solution) -> str:
        """One of those beginnings, the last step of the work, and the answer; the whole work where none was heard."""
        text, begun = self.working(task), self._begun[task.dataset]
        if not begun:
            return text
        steps, stop, conclusion = text.partition(". ")
        last = steps.rpartition(": ")[2].rpartition(", ")[2]
        return f"{self.kit.rng.choice(begun)} {last}{stop}{conclusion}"

    def _beginning(self, text: str) -> str:
        return text if self._answered else text[: text.index(_ANSWER)].rstrip()
