"""Attacks on the time of a node."""

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


_SIGNATURE = 64


class SignatureFlood(Attack):
    """Forged messages arrive as fast as the line allows, and each costs one verification to refuse."""

    id = "signature-flood"
    layer = "gossip"

    def __init__(self, kit: Kit, *, burst: int = 50) -> None:
        """`burst` messages are sent at each turn."""
        super().__init__(kit)
        self._burst = burst

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round without bodies, again and again, each time with a random signature."""
        groups = self.kit.flawless(key, epoch, 0, 1)
        message = self.kit.message(key, epoch, 0, groups)
        signature = message.rindex(b"\x58\x40", 0, len(message) - len(groups[0].body)) + 2
        for _ in range(self._burst):
            yield Packet(message[:signature] + self.kit.rng.randbytes(_SIGNATURE) + message[signature + _SIGNATURE :])
