"""Attacks on bodies that are fetched: peers that give none, and peers that request them without end."""

from collections import deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet
from sapo_protocol import GetRequest, InventoryItem
from sapo_protocol.limits import MAX_DELIVERED, MAX_HOPS


class Withholding(Attack):
    """Envelopes whose bodies no peer gets take the turns of others, and requests to the attackers come to nothing.

    Each envelope is flawless and claims the greatest advantage. Attackers forward the envelopes of others, and have no
    bodies of theirs. With `seconds`, each request waits that long, so that the node that asks cannot ask another.
    """

    id = "withholding"
    layer = "resource"
    serves = False

    def __init__(self, kit: Kit, *, seconds: float = 0.0) -> None:
        super().__init__(kit)
        self.answer_seconds = seconds

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round."""
        return self.round(key, epoch, self.kit.honest)


class AskingStorm(Attack):
    """Requests for bodies without end make honest nodes send bytes, and pass on requests that come to nothing."""

    id = "asking-storm"
    layer = "resource"
    serves = False

    def __init__(self, kit: Kit, *, times: int = 5) -> None:
        """At each turn a key sends each of its requests `times` times to each peer."""
        super().__init__(kit)
        self._times = times
        self._heard: deque[bytes] = deque(maxlen=MAX_DELIVERED)
        self._withheld: bytes = b""

    def hear(self, message: bytes) -> None:
        """Note the envelope."""
        if sealed := self.kit.sealed(message):
            self._heard.append(sealed.envelope_id)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round whose bodies nobody gets."""
        for packet in self.round(key, epoch, self.kit.honest):
            if sealed := self.kit.sealed(packet.data):
                self._withheld = sealed.envelope_id
            yield packet

    def requests(self) -> Iterable[GetRequest]:
        """Request all bodies of the envelopes heard last, and the bodies that nobody has."""
        groups = (1 << self.groups) - 1
        for _ in range(self._times):
            if self._heard:
                yield GetRequest(tuple(InventoryItem(each, groups) for each in sorted(self._heard)))
            if self._withheld:
                yield GetRequest((InventoryItem(self._withheld, groups),), MAX_HOPS)
