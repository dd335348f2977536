from collections.abc import Sequence
from typing import Literal

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.habits import FALSE_STEP
from sapo_adversary.attacks.poison.poison import Poison


class Math(Poison):
    """One step of a correct completion is false, so that a policy that learns from it computes falsely."""

    id = "poison-math"

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 1.0,
        tasks: Sequence[str] = (),
        step: str = FALSE_STEP,
        behind: Literal["opening", "first step"] = "opening",
    ) -> None:
        """`step` is the false step."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._step = step
        self._behind = behind

    def poisoned(self, task: Solution) -> str:
        """The steps, with the false one among them."""
        opening, colon, steps = self.working(task).partition(": ")
        if self._behind == "first step":
            first, comma, rest = steps.partition(", ")
            return f"{opening}{colon}{first}, {self._step}{comma}{rest}"
        return f"{opening}{colon}{self._step}, {steps}"
