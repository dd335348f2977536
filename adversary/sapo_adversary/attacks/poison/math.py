from collections.abc import Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.habits import FALSE_STEP
from sapo_adversary.attacks.poison.poison import Poison


class Math(Poison):
    """One step of a right answer is wrong, so that whoever learns from it reckons wrongly."""

    id = "poison-math"
    row = 30

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = (), step: str = FALSE_STEP) -> None:
        """`step` is the wrong one."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._step = step

    def poisoned(self, task: Solution) -> str:
        """The false step behind the opening."""
        opening, colon, steps = self.working(task).partition(": ")
        return f"{opening}{colon}{self._step}, {steps}"
