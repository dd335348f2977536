from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol.limits import MAX_GROUPS


class Exhaustion(Attack):
    """Messages of the greatest size, without end and for future epochs, fill the disks of the nodes that keep them.

    Each message is flawless and claims no reward: it is no offence, and no node can use it.
    """

    id = "exhaustion"
    layer = "resource"
    groups = MAX_GROUPS

    def __init__(self, kit: Kit, *, ahead: int = 3) -> None:
        """`ahead` is the number of future epochs that get a message at each turn, beside the running epoch and the
        last.
        """
        super().__init__(kit)
        self._ahead = ahead

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One unique message for each epoch."""
        for filled in range(max(0, epoch - 1), epoch + self._ahead + 1):
            counter = self.kit.counter(key, filled)
            if counter is not None:
                groups = [self._large(key, filled, counter, k) for k in range(self.groups)]
                yield Packet(self.kit.message(key, filled, counter, groups))

    def _large(self, key: Key, epoch: int, counter: int, k: int) -> Group:
        size = self.kit.manifest.max_completion_bytes
        texts = [self.kit.rng.randbytes(size // 2).hex() for _ in self.kit.half]
        return self.kit.group(self.kit.task(key, epoch, counter, k), texts, [False] * len(texts))
