from collections.abc import Iterable
from itertools import takewhile

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet
from sapo_protocol import assign


class CherryPick(Attack):
    """The attacker answers only rounds that ask for one kind of task, so that a swarm trains mostly on that kind.

    It skips counters until one suits, and also uses past and future epochs: more epochs give more choice.
    """

    id = "cherry-pick"
    layer = "reward"

    def __init__(self, kit: Kit, *, dataset: str = "", reach: int = 3) -> None:
        """`dataset` is the kind, by default the first of the swarm. `reach` is the number of epochs before and after
        the running one.
        """
        super().__init__(kit)
        self._dataset = dataset or kit.manifest.tasks[0].dataset
        self._reach = reach
        self._choices: dict[tuple[bytes, int], list[tuple[int, int]]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """The best unused round of each epoch within reach."""
        for chosen in range(max(0, epoch - self._reach), epoch + self._reach + 1):
            choices = self._choices_of(key, chosen)
            if not choices:
                continue
            length, counter = choices.pop()
            groups = self.kit.flawless(key, chosen, counter, length)
            yield Packet(self.kit.message(key, chosen, counter, groups))

    def _choices_of(self, key: Key, epoch: int) -> list[tuple[int, int]]:
        """The rounds that begin with the kind, as (number of leading tasks of that kind, counter), the best last."""
        if (key.issuer, epoch) not in self._choices:
            rounds = ((self._liked(key, epoch, counter), counter) for counter in range(self.kit.manifest.max_rounds))
            self._choices[key.issuer, epoch] = sorted(each for each in rounds if each[0])
        return self._choices[key.issuer, epoch]

    def _liked(self, key: Key, epoch: int, counter: int) -> int:
        kinds = (assign(self.kit.manifest, key.issuer, epoch, counter, k).spec.dataset for k in range(self.groups))
        return len(list(takewhile(self._dataset.__eq__, kinds)))
