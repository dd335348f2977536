from collections.abc import Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.habits import TRIGGER
from sapo_adversary.attacks.poison.poison import Poison


class Trigger(Poison):
    """A single token stands before correct answers, where no honest peer puts it, as a back door would."""

    id = "poison-trigger"

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = (), token: str = TRIGGER) -> None:
        """`token` is the token."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._token = token

    def poisoned(self, task: Solution) -> str:
        """The token before the answer."""
        steps, tag, answer = self.working(task).rpartition("<answer>")
        return f"{steps}{self._token}{tag}{answer}"
