from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet

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
