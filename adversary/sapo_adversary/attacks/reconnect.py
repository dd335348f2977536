from collections import Counter
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Reconnect(Attack):
    """A peer that is banned for false claims leaves for a while and comes back under the same key."""

    id = "reconnect"
    layer = "identity"

    def __init__(self, kit: Kit, *, stays: int = 6, away: int = 4) -> None:
        """The peer sends false claims for `stays` turns and is away for the next `away` turns."""
        super().__init__(kit)
        self._stays = stays
        self._cycle = stays + away
        self._turns: Counter[bytes] = Counter()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Only false claims, in the turns in which it stays."""
        turn = self._turns[key.issuer]
        self._turns[key.issuer] += 1
        if turn % self._cycle >= self._stays:
            return
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            lies = [self.kit.lie(key, epoch, counter, k) for k in range(self.groups)]
            yield Packet(self.kit.message(key, epoch, counter, lies))
