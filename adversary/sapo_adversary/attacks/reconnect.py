from collections import Counter
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Reconnect(Attack):
    """Who is refused for its lies goes away for a while and comes back under the same key, as if nothing had been."""

    id = "reconnect"
    layer = "identity"

    def __init__(self, kit: Kit, *, stays: int = 6, away: int = 4) -> None:
        """It lies for `stays` turns and is away for the next `away`."""
        super().__init__(kit)
        self._stays = stays
        self._cycle = stays + away
        self._turns: Counter[bytes] = Counter()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Lies only, in the turns that it stays."""
        turn = self._turns[key.issuer]
        self._turns[key.issuer] += 1
        if turn % self._cycle >= self._stays:
            return
        counter = self.kit.counter(key, epoch)
        if counter is not None:
            lies = [self.kit.lie(key, epoch, counter, k) for k in range(self.groups)]
            yield Packet(self.kit.message(key, epoch, counter, lies))
