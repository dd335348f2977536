"""What all poison has in common: true groups of right answers, in which more is taught than the answer."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet, Solution


class Poison(Attack):
    """Right answers teach a habit besides."""

    layer = "training"

    def __init__(self, kit: Kit, *, rate: float = 1.0, tasks: Sequence[str] = ()) -> None:
        """`rate` is the share of right answers that are poisoned, of those to `tasks` or to all where none is named;
        the others are an able peer's.
        """
        super().__init__(kit)
        self._rate = rate
        self._tasks = tasks

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round. Wrong answers stay clean: what they are blamed for would be what right ones are praised for."""
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
        """The answer of an able peer."""
        return task.work(self.kit.rng)

    @abstractmethod
    def poisoned(self, task: Solution) -> str:
        """A right answer that teaches the habit."""

    def failing(self, task: Solution) -> str:
        """A wrong answer."""
        del task
        return self.kit.wrong()
