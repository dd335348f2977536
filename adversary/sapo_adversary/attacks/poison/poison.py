"""The common part of all poison: verified groups of correct completions that teach more than the answer."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet, Solution


class Poison(Attack):
    """Correct completions also teach a habit."""

    layer = "training"

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = ()) -> None:
        """`rate` is the share of correct completions that are poisoned, of those for `tasks`, or for all tasks where
        `tasks` is empty. The others are those of an able peer.
        """
        super().__init__(kit)
        self._rate = rate
        self._tasks = tasks

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round. Incorrect completions stay clean: a habit in both would be rewarded and penalised alike."""
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            groups = [self._group(key, epoch, counter, k) for k in range(self.groups)]
            yield Packet(self.kit.message(key, epoch, counter, groups))

    def _group(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        texts = [self._right(task) if reward else self.failing(task) for reward in self.kit.half]
        return self.kit.group(task, texts, self.kit.half)

    def _right(self, task: Solution) -> str:
        poisons = (not self._tasks or task.dataset in self._tasks) and self.kit.rng.random() < self._rate
        return self.poisoned(task) if poisons else self.working(task)

    def working(self, task: Solution) -> str:
        """The completion of an able peer."""
        return task.work(self.kit.rng)

    @abstractmethod
    def poisoned(self, task: Solution) -> str:
        """A correct completion that teaches the habit."""

    def failing(self, task: Solution) -> str:
        """An incorrect completion."""
        del task
        return self.kit.wrong()
