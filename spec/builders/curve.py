"""Edwards25519 in integers (RFC 8032, section 5.1), for signatures that no library makes.

Slow and not constant-time: for test keys only.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SQRT_MINUS_ONE = pow(2, (P - 1) // 4, P)


@dataclass(frozen=True)
class Point:
    x: int
    y: int

    def __add__(self, other: "Point") -> "Point":
        product = D * self.x * other.x * self.y * other.y % P
        inverse = pow(1 - product * product, -1, P)  # of (1 + product) * (1 - product)
        x = (self.x * other.y + self.y * other.x) * (1 - product) * inverse
        y = (self.y * other.y + self.x * other.x) * (1 + product) * inverse
        return Point(x % P, y % P)

    def __neg__(self) -> "Point":
        return Point(-self.x % P, self.y)

    @cache  # noqa: B019 - few points are made, and most factors come again
    def __rmul__(self, factor: int) -> "Point":
        result, power = IDENTITY, self
        for bit in reversed(f"{factor:b}"):
            if bit == "1":
                result += power
            power += power
        return result

    def encoded(self) -> bytes:
        return encoding(self.y, self.x & 1)


def encoding(y: int, sign: int) -> bytes:
    """32 bytes for any y below 2^255, canonical or not."""
    return (y | sign << 255).to_bytes(32, "little")


def points_at(y: int) -> tuple[Point, ...]:
    """The points of the curve with this y, the one with even x first; empty if there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * SQRT_MINUS_ONE % P
    if x * x % P != square:
        return ()
    return tuple(Point(root, y % P) for root in sorted({x, -x % P}, key=lambda root: root & 1))


IDENTITY = Point(0, 1)
BASE = points_at(4 * pow(5, -1, P))[0]


def _order_eight() -> Point:
    """The first L * point that generates all eight points of small order."""
    y = 2
    while True:
        for point in points_at(y):
            torsion = L * point
            if 4 * torsion != IDENTITY:
                return torsion
        y += 1


EIGHTH = _order_eight()
TORSION = tuple(multiple * EIGHTH for multiple in range(8))
"""The points of small order, TORSION[1] of order eight, TORSION[2] of order four, TORSION[4] of order two."""


def small_order_encodings() -> Iterator[tuple[Point, bytes]]:
    """All 14 encodings of the eight points, including y + p where it fits and both signs at x = 0."""
    for point in TORSION:
        for y in (point.y, point.y + P):
            signs = (0, 1) if point.x == 0 else (point.x & 1,)
            yield from ((point, encoding(y, sign)) for sign in signs if y < 2**255)


def challenge(r: bytes, a: bytes, message: bytes) -> int:
    """The hash h of a signature as an integer, not reduced modulo L."""
    return int.from_bytes(hashlib.sha512(r + a + message).digest(), "little")


def signature(r: bytes, s: int) -> bytes:
    return r + s.to_bytes(32, "little")


def secret_scalar(seed: bytes) -> int:
    """The secret scalar of an RFC 8032 key."""
    digest = bytearray(hashlib.sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    return int.from_bytes(digest, "little")


def sign(seed: bytes, message: bytes, nonce: int) -> bytes:
    """A valid signature with the given nonce; each nonce gives a different signature."""
    secret = secret_scalar(seed)
    public, r = (secret * BASE).encoded(), (nonce * BASE).encoded()
    return signature(r, (nonce + challenge(r, public, message) * secret) % L)
