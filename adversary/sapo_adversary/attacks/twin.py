from collections.abc import Iterable

import cbor2

from sapo_adversary.attacks.forms import FORMS, encode_as
from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Twin(Attack):
    """One rollout is sent in many encodings, so that a node counts it many times.

    The author signs each encoding: every signature verifies, and no two messages have the same content id.
    """

    id = "twin"
    layer = "wire"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._waiting: dict[bytes, list[bytes]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round in the correct encoding, and at each later turn one of its other encodings."""
        waiting = self._waiting.setdefault(key.issuer, [])
        if not waiting:
            counter = self.kit.counter(key, epoch)
            if counter is None:
                return
            groups = self.kit.flawless(key, epoch, counter, self.groups)
            payload = self.kit.payload(epoch, counter, groups)
            waiting += [self.kit.signed(key, form, groups) for form in (payload, *twins(payload))]
        yield Packet(waiting.pop(0))


def twins(payload: bytes) -> list[bytes]:
    """Other encodings that a lenient decoder reads as the same payload."""
    value = cbor2.loads(payload)
    rewritten = [encode_as(value, form) for form in FORMS.values()]
    self_described = b"\xd9\xd9\xf7" + payload
    return [*rewritten, self_described, payload + b"\0"]
