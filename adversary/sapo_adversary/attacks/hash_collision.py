from collections.abc import Sequence

from sapo_adversary.attacks.bomb import Bomb
from sapo_adversary.attacks.forms import MAP, head
from sapo_adversary.attacks.kit import Kit

MODULUS = 2**61 - 1
"""Python hashes an integer to its remainder by this number, so that all multiples collide in a hash table."""


class HashCollision(Bomb):
    """A map of integer keys with one hash makes a decoder's time grow with the square of their number."""

    id = "hash-collision"
    layer = "wire"

    def __init__(self, kit: Kit, *, keys: int = 16_000) -> None:
        """`keys` is the number of keys in the map."""
        super().__init__(kit)
        self._bomb = colliding_map(keys)

    def bombs(self) -> Sequence[bytes]:
        """The one map."""
        return (self._bomb,)


def colliding_map(keys: int) -> bytes:
    """A map of `keys` colliding keys, each with the value 0."""
    return head(MAP, keys) + b"".join(_number(MODULUS * place) + b"\0" for place in range(1, keys + 1))


def _number(value: int) -> bytes:
    """An encoded integer; from 2^64 on a bignum."""
    if value < 2**64:
        return head(0, value)
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return b"\xc2" + head(2, len(digits)) + digits
