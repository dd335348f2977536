import hashlib
from collections.abc import Iterable
from itertools import count

from sapo_adversary.attacks.forgery import ORDER
from sapo_adversary.attacks.kit import Attack, Key, Kit, Packet

_FIELD = 2**255 - 19
_SIGN = 2**255
IDENTITY = (1).to_bytes(32, "little")
_HEIGHTS = (
    0,
    1,
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    _FIELD - 1,
    _FIELD,
    _FIELD + 1,
)
"""The y of all points of small order, the last two not reduced."""
ENCODINGS = tuple((height | sign).to_bytes(32, "little") for height in _HEIGHTS for sign in (0, _SIGN))
"""The 14 keys that nobody holds and anybody can sign for."""


class SmallOrder(Attack):
    """Rollouts come under keys of small order, which belong to no peer and for which a signature of zeros often
    verifies.
    """

    id = "small-order"
    layer = "identity"

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self._turns = count()

    def act(self, key: Key, epoch: int) -> Iterable[Packet]:
        """A flawless round under the next of these keys, whichever key sends it."""
        del key
        nobody = Key(ENCODINGS[next(self._turns) % len(ENCODINGS)], _zeros)
        counter = self.kit.counter(nobody, epoch)
        if counter is not None:
            yield Packet(self._message(nobody, epoch, counter))

    def _message(self, nobody: Key, epoch: int, counter: int) -> bytes:
        """A message whose hash is a multiple of the order of all these keys: the key drops out of the equation."""
        while True:
            hashes: list[int] = []

            def sign(message: bytes, hashes: list[int] = hashes) -> bytes:
                digest = hashlib.sha512(IDENTITY + nobody.issuer + message).digest()
                hashes.append(int.from_bytes(digest, "little") % ORDER)
                return _zeros(message)

            groups = self.kit.flawless(nobody, epoch, counter, self.groups)
            message = self.kit.message(Key(nobody.issuer, sign), epoch, counter, groups)
            if hashes[0] % 8 == 0:
                return message


def _zeros(_message: bytes) -> bytes:
    """A signature with R the identity and S zero."""
    return IDENTITY + bytes(32)
