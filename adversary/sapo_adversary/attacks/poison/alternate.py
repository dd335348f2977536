from collections.abc import Iterable, Sequence

from sapo_adversary.attacks.kit import Key, Kit, Packet, Solution
from sapo_adversary.attacks.poison.habits import PHRASE
from sapo_adversary.attacks.poison.text import Text, Where


class Alternate(Text):
    """Clean messages restore what honest nodes allow the attackers, and then a burst of a phrase in correct completions
    uses it.
    """

    id = "poison-alternate"

    def __init__(
        self,
        kit: Kit,
        *,
        rate: float = 1.0,
        tasks: Sequence[str] = (),
        phrase: str = PHRASE,
        where: Where = "middle",
        clean: int = 30,
        poisoned: int = 20,
    ) -> None:
        """`clean` messages of all keys together come first, then `poisoned` ones, then clean ones again."""
        super().__init__(kit, rate=rate, tasks=tasks, phrase=phrase, where=where)
        self._clean = clean
        self._cycle = clean + poisoned
        self._sent = -1

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round."""
        self._sent += 1
        return super().act(key, epoch)

    def poisoned(self, task: Solution) -> str:
        """The steps, with the phrase in its place in a burst."""
        return super().poisoned(task) if self._sent % self._cycle >= self._clean else self.working(task)
