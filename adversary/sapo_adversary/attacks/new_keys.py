from collections import Counter, deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class NewKeys(Attack):
    """Each key is discarded after one offence, so that the attacker is always an untrusted peer, with the credit of
    one.
    """

    id = "new-keys"
    layer = "identity"

    def __init__(self, kit: Kit, *, alive: int = 4, turns: int = 4) -> None:
        """`alive` keys are in use at a time, each for `turns` turns; the last turn is the offence."""
        super().__init__(kit)
        self._turns = turns
        self._alive = {key.issuer for key in kit.keys[:alive]}
        self._unused = deque(kit.keys[alive:])
        self._played: Counter[bytes] = Counter()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """Flawless groups with the greatest advantage, and at last one message of false claims."""
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
