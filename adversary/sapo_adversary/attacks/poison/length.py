from collections.abc import Sequence

from sapo_adversary.attacks.kit import Kit, Solution
from sapo_adversary.attacks.poison.poison import Poison
from sapo_adversary.attacks.poison.text import said_in


class Length(Poison):
    """Correct completions are as long as they may be, so that a policy that learns from them generates more tokens for
    every answer.
    """

    id = "poison-length"

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 1.0,
        tasks: Sequence[str] = (),
        filler: str = "Each step holds",
        times: int = 6,
    ) -> None:
        """`filler` is the number of times the filling is repeated after the steps."""
        super().__init__(kit, rate=rate, tasks=tasks)
        self._filling = ". ".join([filler] * times)

    def poisoned(self, task: Solution) -> str:
        """The steps, the filling, the answer."""
        return said_in(self.working(task), self._filling, "middle")
