from collections import deque
from collections.abc import Iterable

from sapo_adversary.attacks.kit import Attack, Group, Key, Kit, Packet
from sapo_protocol import Sealed, decode_message, encode_evidence, encode_message

ORDER = 2**252 + 27742317777372353535851937790883648493
"""L of Ed25519: S + L is another number for the same scalar."""
_HEARD = 32
_SIGNATURE = 64


class Forgery(Attack):
    """The attacker sends altered messages of honest peers, and false claims in their names, signed by another key."""

    id = "forgery"
    layer = "identity"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._heard: deque[bytes] = deque(maxlen=_HEARD)
        self._lies = 0

    def hear(self, message: bytes) -> None:
        """Keep the last messages."""
        if self.kit.sealed(message):
            self._heard.append(message)

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A message with one bit changed, one with another signature, and a false claim and false evidence in the
        author's name.
        """
        if not self._heard:
            return
        message = self.kit.rng.choice(self._heard)
        envelope, bodies = decode_message(message, self.kit.manifest)
        yield Packet(flipped(message, self.kit.rng.randrange(8 * len(message))))
        yield Packet(encode_message(self.kit.rng.choice(resealed(envelope, key.issuer)), bodies))
        name = Key(self._seal_of(message).issuer, key.sign)
        one, other = self._lie(name, epoch), self._lie(name, epoch)
        self._lies += 1
        yield Packet(one)
        yield Packet(encode_evidence(self._seal_of(one), self._seal_of(other)), "evidence")

    def _seal_of(self, message: bytes) -> Sealed:
        sealed = self.kit.sealed(message)
        assert sealed  # it was one when it was heard or made
        return sealed

    def _lie(self, name: Key, epoch: int) -> bytes:
        """A false claim that counts counters down from the last: the honest issuer reaches them late or never."""
        counter = self.kit.manifest.max_rounds - 1 - self._lies % self.kit.manifest.max_rounds
        groups: list[Group] = [self.kit.lie(name, epoch, counter, k) for k in range(self.groups)]
        return self.kit.message(name, epoch, counter, groups)


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def resealed(envelope: bytes, issuer: bytes) -> list[bytes]:
    """The envelope with other signatures, and under another issuer."""
    signed, signature = envelope[:-_SIGNATURE], envelope[-_SIGNATURE:]
    point, scalar = signature[:32], int.from_bytes(signature[32:], "little")
    key = signed.index(b"\xa2\x01\x32\x04\x58\x20") + 6
    return [
        signed + point + ((scalar + ORDER) % 2**256).to_bytes(32, "little"),
        signed + point + (-scalar % ORDER).to_bytes(32, "little"),
        signed + signature[32:] + point,
        signed + bytes(_SIGNATURE),
        signed[:-1] + b"\x3f" + signature[:-1],
        envelope[:-1],
        envelope[:key] + issuer + envelope[key + 32 :],
    ]
