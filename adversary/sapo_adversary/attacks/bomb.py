"""A flawless rollout with one item inside that costs its decoder much time or memory."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count

from sapo_adversary.attacks.forms import with_x
from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Bomb(Attack):
    """The item is the value of `x`, which every node ignores: by turns in the signed header and in the bodies."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._turns = count()

    @abstractmethod
    def bombs(self) -> Sequence[bytes]:
        """The encoded items."""

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One message with the next item."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        bombs = self.bombs()
        turn, in_bodies = divmod(next(self._turns), 2)
        place = self.in_bodies if in_bodies else self.in_header
        yield Packet(place(key, epoch, counter, bombs[turn % len(bombs)]))

    def in_header(self, key: Key, epoch: int, counter: int, bomb: bytes) -> bytes:
        """A message with the item in the header, which the signature covers."""
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        return self.kit.signed(key, with_x(self.kit.payload(epoch, counter, groups), bomb), groups)

    def in_bodies(self, key: Key, epoch: int, counter: int, bomb: bytes) -> bytes:
        """A message with the item in each of its bodies."""
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        return self.kit.message(key, epoch, counter, [group.carrying(with_x(group.body, bomb)) for group in groups])
