from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet

EARNING_EPOCHS = 3
"""Epochs in which a patient sybil behaves honestly: as many as a peer needs to become healthy, and one more."""


class Sybil(Attack):
    """Many keys of one attacker always have the answers, so that most of what a swarm trains on is theirs.

    Everything that they send is correct. A peer that holds most of the loss weight may poison it later.
    """

    id = "sybil"
    layer = "identity"

    def __init__(
        self, kit: Kit, *, patient: bool = False, padding: int = 32, groups: int = Attack.groups, heavy: bool = False
    ) -> None:
        """`patient` keys earn trust with plain short groups first; `padding` bytes are added to each text; a message
        has so many `groups`. All completions of a `heavy` group are correct but one, which is empty.
        """
        super().__init__(kit)
        self._groups = groups
        self._heavy = heavy
        self._padding = padding
        self._patience = EARNING_EPOCHS if patient else 0
        self._start: int | None = None

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Half of the completions correct, or all but one; padded after the patient phase."""
        if self._start is None:
            self._start = epoch
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        make = self.kit.honest if epoch - self._start < self._patience else self._padded
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self._groups)]))

    def _padded(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        task = self.kit.task(key, epoch, counter, k)
        rewards = tuple(place > 0 for place in range(len(self.kit.half))) if self._heavy else self.kit.half
        padding = "Well. " * (self._padding // 6)
        texts = [
            "" if self._heavy and not reward else padding + text
            for text, reward in zip(self.kit.answers(task, rewards), rewards, strict=True)
        ]
        return self.kit.group(task, texts, rewards)
