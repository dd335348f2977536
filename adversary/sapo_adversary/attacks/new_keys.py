from collections import Counter, deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class NewKeys(Attack):
    """Keys are thrown away after each offence, so that a liar is always a stranger, with a stranger's credit."""

    id = "new-keys"
    layer = "identity"

    def __init__(self, kit: Kit, *, alive: int = 4, turns: int = 4) -> None:
        """Of the band's keys `alive` are in use at a time, each for `turns` turns, of which the last is the offence."""
        super().__init__(kit)
        self._turns = turns
        self._alive = {key.issuer for key in kit.keys[:alive]}
        self._unused = deque(kit.keys[alive:])
        self._played: Counter[bytes] = Counter()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Flawless groups with all the advantage that there is; at last one message of lies."""
        if key.issuer not in self._alive:
            return
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        self._played[key.issuer] += 1
        offends = self._played[key.issuer] == self._turns
        make = self.kit.lie if offends else self.kit.honest
        yield Packet(self.kit.message(key, epoch, counter, [make(key, epoch, counter, k) for k in range(self.groups)]))
        if offends:
            self._alive.discard(key.issuer)
            if self._unused:
                self._alive.add(self._unused.popleft().issuer)
