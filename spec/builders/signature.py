"""Cases of kind `signature`: where Ed25519 libraries disagree (SIG-1 to SIG-4).

Keys and nonces are known multiples of the base point plus a point of small order. A search over messages finds a hash
for which these points cancel, or do not. Most refused signatures therefore satisfy the equation, and only one rule
refuses them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import gcd

import curve
from cases import ACCEPT, Case
from curve import BASE, TORSION, L, P
from wire import sha256

SEED, OTHER_SEED = sha256(b"sapo test key signature"), sha256(b"sapo test key another signature")
SECRET = curve.secret_scalar(SEED)
KEY = SECRET * BASE
NONCE = int.from_bytes(sha256(b"sapo test nonce"), "little") % L
R = NONCE * BASE
MESSAGE = b"a message"
SIGNATURE = curve.sign(SEED, MESSAGE, NONCE)
S = int.from_bytes(SIGNATURE[32:], "little")

IMPOSSIBLE = "Nobody can make one that satisfies the equation as well, so SIG-4 would refuse it too."

RFC_8032 = {
    "test 1": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    "test 2": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
            "387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    "test 3": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
            "4a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
}


def _case(
    name: str,
    rule: str,
    *,
    key: bytes = KEY.encoded(),
    message: bytes = MESSAGE,
    signature: bytes = SIGNATURE,
    expect: str = "signature",
    note: str = "",
) -> Case:
    fields: Mapping[str, bytes] = {"public_key": key, "message": message, "signature": signature}
    return Case(name, rule, "signature", fields, expect, note=note)


def cases() -> Iterable[Case]:
    yield from _ordinary()
    yield from _large_s()
    yield from _small_order()
    yield from _bad_encodings()
    yield from _mixed_order()
    yield from _hash_reduced()
    yield from _not_signed()
    yield from _lengths()


def _ordinary() -> Iterator[Case]:
    yield _case("a signature", "SIG-4", expect=ACCEPT)
    for name, (key, message, signature) in RFC_8032.items():
        fields = {"key": bytes.fromhex(key), "message": bytes.fromhex(message), "signature": bytes.fromhex(signature)}
        yield _case(f"rfc 8032 {name}", "SIG-4", **fields, expect=ACCEPT, note="From section 7.1.")
    for name, message in {"an empty message": b"", "a message of 4000 bytes": bytes(4000)}.items():
        yield _case(name, "SIG-4", message=message, signature=curve.sign(SEED, message, NONCE), expect=ACCEPT)
    signs = {point.x & 1: seed for seed in (SEED, OTHER_SEED) for point in [curve.secret_scalar(seed) * BASE]}
    for sign, what in enumerate(("even", "odd")):
        seed = signs[sign]
        key = (curve.secret_scalar(seed) * BASE).encoded()
        signature = curve.sign(seed, MESSAGE, NONCE)
        yield _case(f"a key whose x is {what}", "SIG-2", key=key, signature=signature, expect=ACCEPT)


def _large_s() -> Iterator[Case]:
    ends = {"of 31 bytes": range(1 << 248), "with its highest bit set": range(1 << 251, L)}
    for name, wanted in ends.items():
        for nonce in count(1):
            signature = curve.sign(SEED, MESSAGE, nonce)
            if int.from_bytes(signature[32:], "little") in wanted:
                break
        yield _case(f"an s {name}", "SIG-1", signature=signature, expect=ACCEPT)
    for times in (1, 2, 7, 8, 15):
        added = "the order" if times == 1 else f"{times} times the order"
        signature = curve.signature(R.encoded(), S + times * L)
        yield _case(f"{added} added to s", "SIG-1", signature=signature)
    yield _case("an s that is the order", "SIG-1", signature=curve.signature(R.encoded(), L), note=IMPOSSIBLE)
    yield _case("an s of zero", "SIG-4", signature=SIGNATURE[:32] + bytes(32))


@dataclass(frozen=True)
class Made:
    """A point with known parts: `number` times the base point, plus TORSION[small]."""

    number: int
    small: int = 0
    written: bytes = b""
    """Its encoding, if not canonical."""

    @property
    def encoded(self) -> bytes:
        return self.written or (self.number * BASE + TORSION[self.small]).encoded()


def _signed(key: Made, r: Made, *, cancels: bool = True, cancels_unreduced: bool | None = None) -> dict[str, bytes]:
    """A signature whose equation holds except for points of small order, over the first message for which these cancel
    (or do not) under the hash reduced modulo L, and under the whole hash (by default the same).
    """
    a, r_bytes = key.encoded, r.encoded
    wanted = (cancels, cancels if cancels_unreduced is None else cancels_unreduced)
    for attempt in count():
        message = f"message {attempt}".encode()
        whole = curve.challenge(r_bytes, a, message)
        if tuple((r.small + h * key.small) % 8 == 0 for h in (whole % L, whole)) == wanted:
            break
    signature = curve.signature(r_bytes, (r.number + whole % L * key.number) % L)
    return {"key": a, "message": message, "signature": signature}


def _small_order() -> Iterator[Case]:
    for point, encoded in curve.small_order_encodings():
        small = TORSION.index(point)
        what = f"of order {8 // gcd(small, 8)} written {encoded[:2].hex()} to {encoded[-1:].hex()}"
        signed = _signed(Made(0, small, encoded), Made(NONCE))
        yield _case(f"a key {what}", "SIG-2", **signed, note="The equation holds, and for many another message too.")
        signed = _signed(Made(SECRET, 1 if small else 0), Made(0, small, encoded))
        yield _case(f"an r {what}", "SIG-3", **signed, note="As points, both sides of the equation are equal.")


def _bad_encodings() -> Iterator[Case]:
    on_curve = [y for y in range(2, 19) if curve.points_at(y)]
    off_curve = next(y for y in count(2) if not curve.points_at(y))
    encodings = {
        "with the smallest y above p": curve.encoding(P + on_curve[0], 0),
        "with the largest y": curve.encoding(P + on_curve[-1], 0),
        "with the largest y and a sign": curve.encoding(P + on_curve[-1], 1),
        "that is no point": curve.encoding(off_curve, 0),
    }
    for name, encoded in encodings.items():
        signature = curve.signature(R.encoded(), S)
        yield _case(f"a key {name}", "SIG-2", key=encoded, signature=signature, note=IMPOSSIBLE)
        yield _case(f"an r {name}", "SIG-4", signature=curve.signature(encoded, S))


def _mixed_order() -> Iterator[Case]:
    """Points of small order in key and R: accepted if they cancel. Multiplied by the cofactor they always cancel."""
    note = "The equation holds only once multiplied by the cofactor."
    for small, order in ((4, 2), (2, 4), (1, 8)):
        key, r = Made(SECRET, small), Made(NONCE, small)
        yield _case(f"a key with a part of order {order}", "SIG-2", **_signed(key, Made(NONCE)), expect=ACCEPT)
        yield _case(f"key and r with parts of order {order}", "SIG-3", **_signed(key, r), expect=ACCEPT)
        signed = _signed(key, Made(NONCE), cancels=False)
        yield _case(f"a key with a part of order {order} that remains", "SIG-4", **signed, note=note)
        signed = _signed(Made(SECRET), r, cancels=False)
        yield _case(f"an r with a part of order {order} that remains", "SIG-4", **signed, note=note)
        signed = _signed(key, r, cancels=False)
        yield _case(f"key and r with parts of order {order} that remain", "SIG-4", **signed, note=note)


def _hash_reduced() -> Iterator[Case]:
    note = "For a key of mixed order it matters that h is reduced modulo L before it multiplies."
    key, r = Made(SECRET, 1), Made(NONCE)
    signed = _signed(key, r, cancels=True, cancels_unreduced=False)
    yield _case("a hash that must be reduced", "SIG-4", **signed, expect=ACCEPT, note=note)
    signed = _signed(key, r, cancels=False, cancels_unreduced=True)
    yield _case("a hash that must not be left whole", "SIG-4", **signed, note=note)


def _not_signed() -> Iterator[Case]:
    def flipped(encoded: bytes, bit: int) -> bytes:
        return (int.from_bytes(encoded, "little") ^ 1 << bit).to_bytes(len(encoded), "little")

    other_key = (curve.secret_scalar(OTHER_SEED) * BASE).encoded()
    yield _case("another key", "SIG-4", key=other_key)
    yield _case("the opposite key", "SIG-4", key=flipped(KEY.encoded(), 255))
    yield _case("another message", "SIG-4", message=b"another message")
    yield _case("a message with a zero byte added", "SIG-4", message=MESSAGE + b"\0")
    yield _case("a message with a bit flipped", "SIG-4", message=flipped(MESSAGE, 0))
    yield _case("the message left out", "SIG-4", message=b"")
    yield _case("a bit of s flipped", "SIG-4", signature=flipped(SIGNATURE, 256))
    yield _case("the sign of r flipped", "SIG-4", signature=flipped(SIGNATURE, 255))
    yield _case("s negated", "SIG-4", signature=curve.signature(R.encoded(), L - S))
    yield _case("another r", "SIG-4", signature=curve.signature((R + BASE).encoded(), S))
    reversible = (curve.sign(SEED, MESSAGE, nonce) for nonce in count(1))
    r, s = next((each[:32], each[:31:-1]) for each in reversible if int.from_bytes(each[:31:-1], "little") < L)
    yield _case("s in the other byte order", "SIG-4", signature=r + s)
    for name, hashed in {"ed25519ph": _PH, "ed25519ctx": _CTX}.items():
        whole = hashlib.sha512(hashed[0] + R.encoded() + KEY.encoded() + hashed[1]).digest()
        s = (NONCE + int.from_bytes(whole, "little") * SECRET) % L
        yield _case(f"a signature of {name}", "SIG-4", signature=curve.signature(R.encoded(), s))


_DOMAIN = b"SigEd25519 no Ed25519 collisions"
_PH = _DOMAIN + b"\x01\x00", hashlib.sha512(MESSAGE).digest()
_CTX = _DOMAIN + b"\x00\x01x", MESSAGE


def _lengths() -> Iterator[Case]:
    key = KEY.encoded()
    keys = {"no key": b"", "a key of 31 bytes": key[:31], "a key of 33 bytes": key + b"\0"}
    for name, cut in keys.items():
        yield _case(name, "SIG-2", key=cut)
    signatures = {
        "no signature": b"",
        "a signature of 32 bytes": SIGNATURE[:32],
        "a signature of 63 bytes": SIGNATURE[:63],
        "a signature of 65 bytes": SIGNATURE + b"\0",
        "a signature followed by its message": SIGNATURE + MESSAGE,
        "a signature in hexadecimal text": SIGNATURE.hex().encode(),
    }
    for name, signature in signatures.items():
        yield _case(name, "SIG-4", signature=signature)
