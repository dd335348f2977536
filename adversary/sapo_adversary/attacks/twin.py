from collections.abc import Iterable

import cbor2

from sapo_adversary.attacks.forms import FORMS, encode_as
from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet


class Twin(Attack):
    """One rollout is sent in many encodings, so that it counts as often as it can be written.

    Each twin is signed anew by its author: every signature holds, and no two have the same content id.
    """

    id = "twin"
    layer = "wire"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._waiting: dict[bytes, list[bytes]] = {}

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round as it should be; at each beat after it one of its twins, when the last one has been trained on."""
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
    """Other bytes that a lenient decoder takes for the same payload."""
    value = cbor2.loads(payload)
    rewritten = [encode_as(value, form) for form in FORMS.values()]
    self_described = b"\xd9\xd9\xf7" + payload
    return [*rewritten, self_described, payload + b"\0"]
