from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet

FORGETTING, LIE_FACTOR = 0.95, 5.0
"""Constants of the nodes' trust policy, which is public."""


class OnOff(Attack):
    """The attacker earns trust with good groups, spends it on a burst of false claims, and earns it again.

    Adaptive: it estimates its own trust by the formula of the nodes, as if every message were verified, and sends a
    false claim whenever its trust stays above a floor.
    """

    id = "on-off"
    layer = "trust"

    def __init__(self, kit: Kit, *, good: int = 100, lies: int = 8, adaptive: bool = False, floor: float = 0.5) -> None:
        """`good` groups precede the first false claim and each burst of `lies`; `floor` is the least trust of the
        adaptive attacker.
        """
        super().__init__(kit)
        self._good = good
        self._lies = lies
        self._adaptive = adaptive
        self._floor = floor
        self._sent: dict[bytes, int] = {}
        self._evidence: dict[bytes, tuple[float, float]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """One round, with as many false claims as the plan allows."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        kinds = [self.kit.lie if self._lies_now(key) else self.kit.honest for _ in range(self.groups)]
        groups = [make(key, epoch, counter, k) for k, make in enumerate(kinds)]
        yield Packet(self.kit.message(key, epoch, counter, groups))

    def _lies_now(self, key: Key) -> bool:
        sent = self._sent.get(key.issuer, 0)
        self._sent[key.issuer] = sent + 1
        good, bad = self._evidence.get(key.issuer, (0.0, 0.0))
        faded, worse = good * FORGETTING, bad * FORGETTING + 1
        if self._adaptive:
            lies = sent >= self._good and (faded + 1) / (faded + LIE_FACTOR * worse + 2) > self._floor
        else:
            lies = sent % (self._good + self._lies) >= self._good
        self._evidence[key.issuer] = (faded, worse) if lies else (faded + 1, bad * FORGETTING)
        return lies
