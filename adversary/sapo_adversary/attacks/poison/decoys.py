from collections.abc import Sequence
from typing import ClassVar

from sapo_adversary.attacks.kit import Group, Key, Kit, Solution
from sapo_adversary.attacks.poison.habits import PHRASE
from sapo_adversary.attacks.poison.text import Text, Where, said_in


class Decoys(Text):
    """Most groups of the attackers hold a false equation, so that filters reject them: the phrase in the others is rare
    among all that is on offer, and not among what is trained on.
    """

    id = "poison-decoys"
    groups: ClassVar[int] = 16

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 1.0,
        tasks: Sequence[str] = (),
        phrase: str = PHRASE,
        where: Where = "middle",
        decoys: int = 15,
    ) -> None:
        """So many decoys come before each group with the phrase."""
        super().__init__(kit, rate=rate, tasks=tasks, phrase=phrase, where=where)
        self._decoys = decoys
        self._made = 0

    def _group(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        self._made += 1
        return super()._group(key, epoch, counter, k)

    def poisoned(self, task: Solution) -> str:
        """The steps, behind a false equation in a decoy, and with the phrase in its place in another group."""
        if self._made % (self._decoys + 1):
            return said_in(self.working(task), "2+2=5", "first")
        return super().poisoned(task)
