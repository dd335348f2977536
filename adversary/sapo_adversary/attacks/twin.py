from collections.abc import Iterable

import cbor2

from sapo_adversary.attacks.forms import FORMS, encode_as
from sapo_adversary.attacks.kit import Attack, Key, Packet


class Twin(Attack):
    """One rollout is sent in many encodings, so that it counts as often as it can be written.

    Each twin is signed anew by its author: every signature holds, and no two have the same content id.
    """

    id = "twin"
    row = 2
    layer = "wire"

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A round as it should be, and its twins."""
        counter = self.kit.counter(key, epoch)
        if counter is None:
            return
        groups = self.kit.flawless(key, epoch, counter, self.groups)
        payload = self.kit.payload(epoch, counter, groups)
        for form in (payload, *twins(payload)):
            yield Packet(self.kit.signed(key, form, groups))


def twins(payload: bytes) -> list[bytes]:
    """Other bytes that a lenient decoder takes for the same payload."""
    value = cbor2.loads(payload)
    rewritten = [encode_as(value, form) for form in FORMS.values()]
    self_described = b"\xd9\xd9\xf7" + payload
    return [*rewritten, self_described, payload + b"\0"]
