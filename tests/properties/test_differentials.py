"""Our strict readers beside lenient ones: ours accept less, nothing else, and each difference has a reason."""

import functools
import hashlib
import itertools
import json
import re
from pathlib import Path

import cbor2
import nacl.bindings
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from harness import Source, cbor_item
from hypothesis import given
from hypothesis import strategies as st
from nacl.exceptions import CryptoError

from sapo_protocol import RemoteError, verify_signature
from sapo_protocol.cbor import decode
from sapo_protocol.limits import MAX_DEPTH, MAX_ITEMS

REFUSALS = {
    r"initial byte 0x[23].": ("3903e7", "negative integers: nothing in the protocol is negative"),
    r"initial byte 0x[cd].": ("c100", "tags: they make a decoder build dates, big numbers, or follow references"),
    r"initial byte 0xf[9ab]": ("f93c00", "floats: 1.0 beside 1 is a second form of one value, NaN equals nothing"),
    r"initial byte 0xf6": ("f6", "null: an absent entry is left out"),
    r"initial byte 0xf7": ("f7", "undefined: no value of the protocol"),
    r"initial byte 0x(e.|f[0-3])": ("e0", "simple values without a meaning"),
    r"initial byte 0xf8": ("f8ff", "simple values of two bytes"),
    r"indefinite or reserved length": ("9f01ff", "indefinite lengths: one value would have many encodings"),
    r"a map key that is not text": ("a10102", "other keys: integers collide in a hash table at will"),
    r"bytes after the end": ("0100", "bytes after the item: they would be signed and ignored"),
    r"not the deterministic encoding": (
        "1817 190017 780161 990000 b800 a2616201616101 a2616101616102 a2626161016162f4",
        "long heads, keys out of order and keys twice: second forms of one value",
    ),
    r"nested deeper": ("81" * (MAX_DEPTH + 1) + "00", "depth: every reader's stack is bounded alike"),
    r"more than \d+ items": ("99" + f"{MAX_ITEMS:04x}" + "00" * MAX_ITEMS, "items: a decoder makes an object of each"),
    r"the limit is": ("59ffff" + "00" * 0xFFFF, "size: each kind of data has its limit"),
}
"""What cbor2 accepts and our validator refuses: what the refusal says, examples, and why."""


def ours(data):
    """The value, or None and why not."""
    try:
        return decode(data, limit=10_000), None
    except RemoteError as error:
        return None, str(error)


def theirs(data):
    """The value, or None and why not."""
    try:
        return cbor2.loads(data), None
    except (cbor2.CBORError, ValueError, OverflowError, TypeError) as error:
        return None, error


def same(one, other):
    """Equal, also in type and in the order of keys: to Python 1 equals true."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def compare(data):
    """What ours accepts cbor2 reads alike, and each refusal of what cbor2 accepts is one of those above."""
    value, refusal = ours(data)
    lenient, error = theirs(data)
    if refusal is None:
        assert error is None, data.hex()
        assert same(value, lenient), data.hex()
    elif error is None:
        assert any(re.search(pattern, refusal) for pattern in REFUSALS), (data.hex(), refusal)


def test_cbor2_reads_all_that_the_validator_lets_through_alike_for_every_input_of_two_bytes():
    for length in range(3):
        for data in itertools.product(range(256), repeat=length):
            compare(bytes(data))


@given(st.binary(max_size=200).map(lambda choices: cbor_item(Source(choices))))
def test_cbor2_reads_all_that_the_validator_lets_through_alike_for_nearly_valid_items(data):
    compare(data)


@pytest.mark.parametrize("pattern", REFUSALS)
def test_of_what_cbor2_accepts_the_validator_refuses(pattern):
    examples, _reason = REFUSALS[pattern]
    for example in map(bytes.fromhex, examples.split(" ")):
        assert theirs(example)[1] is None
        assert re.search(pattern, ours(example)[1])


# Ed25519 by the textbook (RFC 8032, section 5.1), for signatures that no library makes.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
IDENTITY = (0, 1)
SECRET, NONCE = (int.from_bytes(hashlib.sha512(name).digest(), "little") % L for name in (b"a key", b"a nonce"))
MESSAGES = [f"message {number}".encode() for number in range(64)]
VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"


def add(one, other):
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, P - 2, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, P - 2, P)
    return x % P, y % P


@functools.cache
def times(scalar, point):
    total = IDENTITY
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point = add(point, point)
        scalar >>= 1
    return total


def root(square):
    """A square root modulo P, or None."""
    for candidate in (pow(square, (P + 3) // 8, P), pow(square, (P + 3) // 8, P) * pow(2, (P - 1) // 4, P) % P):
        if candidate * candidate % P == square % P:
            return candidate
    return None


def point_of(y, sign):
    """The point with this y whose x has this lowest bit; None where there is none."""
    x = root((y * y - 1) * pow(D * y * y + 1, P - 2, P))
    if x is None:
        return None
    return (P - x if x and x & 1 != sign else x), y % P


def encoded(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


BASE = point_of(4 * pow(5, P - 2, P) % P, 0)


@functools.cache
def torsion():
    """The eight points of small order: the multiples of one of order eight, found by clearing a point's main part."""
    y = 2
    while True:
        point = point_of(y, 0)
        if point and encoded(times(4, times(L, point))) != encoded(IDENTITY):
            generator = times(L, point)
            return [times(k, generator) for k in range(8)]
        y += 1


def small_order_encodings():
    """All fourteen: the eight canonical ones, and those with a y of P or P + 1 or a sign for an x of 0."""
    ys = {point[1] for point in torsion()}
    return sorted((y | sign << 255).to_bytes(32, "little") for y in ys | {P, P + 1} for sign in (0, 1))


def canonical_small_order_encodings():
    return sorted(map(encoded, torsion()))


def odd_small_order_encodings():
    return sorted(set(small_order_encodings()) - set(canonical_small_order_encodings()))


# Each class of signatures is a list of (key, message, signature).


def signed(key, r, part, message=MESSAGES[0]):
    """One case whose S is the nonce's `part` of the equation, 0 or 1, plus the secret's."""
    s = (part * NONCE + challenge(r, key, message) * SECRET) % L
    return key, message, r + s.to_bytes(32, "little")


def challenge(r, key, message):
    return int.from_bytes(hashlib.sha512(r + key + message).digest(), "little")


def honest():
    return [signed(encoded(times(SECRET, BASE)), encoded(times(NONCE, BASE)), 1, message) for message in MESSAGES]


def keys_of(encodings):
    """R = rB and S = r: right for each message whose challenge takes the key's point to the identity."""
    r = encoded(times(NONCE, BASE))
    return [(key, message, r + NONCE.to_bytes(32, "little")) for key in encodings for message in MESSAGES]


def small_order_key():
    return keys_of(canonical_small_order_encodings())


def odd_small_order_key():
    return keys_of(odd_small_order_encodings())


def small_order_key_and_r():
    encodings = small_order_encodings()
    return [(key, message, r + bytes(32)) for key in encodings for r in encodings for message in MESSAGES[:8]]


def small_order_r():
    """An honest key with a nonce of 0, to which R adds a point of small order."""
    return [signed(encoded(times(SECRET, BASE)), r, 0) for r in small_order_encodings()]


def s_plus_l():
    key, message, good = honest()[0]
    s = int.from_bytes(good[32:], "little")
    return [(key, message, good[:32] + (s + k * L).to_bytes(32, "little")) for k in range(1, 2**256 // L)]


def odd_encodings():
    """Encodings of points of large order by a y of P and more."""
    ys = [y for y in range(19) if point_of(y, 0)]
    encodings = {(y + P | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)}
    return sorted(encodings - set(small_order_encodings()))


def odd_key():
    """Nobody knows the secret of such a key, so that the rest is another's."""
    _, message, good = honest()[0]
    return [(key, message, good) for key in odd_encodings()]


def odd_r():
    """Nobody knows the nonce of such an R either."""
    key, message, good = honest()[0]
    return [(key, message, r + good[32:]) for r in odd_encodings()]


def mixed_order_key():
    """A key with a part of small order, which vanishes for one message in eight."""
    key = encoded(add(times(SECRET, BASE), torsion()[1]))
    return [signed(key, encoded(times(NONCE, BASE)), 1, message) for message in MESSAGES]


def mixed_order_r():
    """Right only for who multiplies the equation by the cofactor."""
    key = encoded(times(SECRET, BASE))
    return [signed(key, encoded(add(times(NONCE, BASE), part)), 1) for part in torsion()[1:]]


SIGNATURES = {
    honest: (64, 64, "alike"),
    small_order_key: (0, 155, "OpenSSL knows no small order: whoever picks such a key signs without a secret"),
    odd_small_order_key: (0, 256, "the same, and one point under several names: OpenSSL takes y modulo P and -0 as 0"),
    small_order_key_and_r: (0, 118, "the same with S = 0: one signature for many messages"),
    small_order_r: (0, 1, "OpenSSL takes the identity as R; the other thirteen fail its equation or its comparison"),
    s_plus_l: (0, 0, "alike: both demand S < L"),
    odd_key: (0, 0, "alike, for want of a secret"),
    odd_r: (0, 0, "alike: both compare R with the canonical encoding of what they compute"),
    mixed_order_key: (11, 11, "alike: both take such a key where the equation holds as it stands"),
    mixed_order_r: (0, 0, "alike: neither multiplies by the cofactor"),
}
"""How many of each class libsodium and OpenSSL accept, and why."""


def sodium(key, message, signature):
    """libsodium itself, below PyNaCl's classes."""
    try:
        return nacl.bindings.crypto_sign_open(signature + message, key) == message
    except CryptoError:
        return False


def openssl(key, message, signature):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@pytest.mark.parametrize("made", SIGNATURES, ids=lambda made: made.__name__)
def test_our_verifier_is_libsodiums_and_differs_from_openssl_as_listed(made):
    by_sodium, by_openssl, _reason = SIGNATURES[made]
    cases = made()
    assert [verify_signature(*case) for case in cases] == [sodium(*case) for case in cases]
    assert (sum(sodium(*case) for case in cases), sum(openssl(*case) for case in cases)) == (by_sodium, by_openssl)


@given(st.binary(max_size=40), st.lists(st.tuples(st.integers(0, 95), st.integers(1, 255)), max_size=3))
def test_on_signatures_with_bytes_changed_all_three_agree(message, changes):
    key, _, signature = signed(encoded(times(SECRET, BASE)), encoded(times(NONCE, BASE)), 1, message)
    changed = bytearray(key + signature)
    for place, change in changes:
        changed[place] ^= change
    case = bytes(changed[:32]), message, bytes(changed[32:])
    assert verify_signature(*case) is sodium(*case) is openssl(*case) is (changed == key + signature)


def vectors(name):
    path = VECTORS / name
    if not path.exists():
        pytest.skip(f"the public vectors {name} are not at hand beside the repository (../shared/vectors)")
    return json.loads(path.read_text())


def test_on_wycheproofs_cases_all_three_agree():
    for group in vectors("wycheproof_ed25519.json")["testGroups"]:
        key = bytes.fromhex(group["publicKey"]["pk"])
        for each in group["tests"]:
            case = key, bytes.fromhex(each["msg"]), bytes.fromhex(each["sig"])
            if len(case[2]) == 64:
                assert verify_signature(*case) is sodium(*case) is openssl(*case), each["comment"]


SPECCHECK = {
    0: "key and R of small order",
    1: "key of small order",
    2: "R of small order",
    11: "key of small order in another encoding",
}
"""The cases of speccheck that OpenSSL accepts and libsodium refuses."""


def test_on_speccheck_openssl_differs_as_listed():
    cases = [
        tuple(bytes.fromhex(each[part]) for part in ("pub_key", "message", "signature"))
        for each in vectors("speccheck_ed25519.json")
    ]
    assert [verify_signature(*case) for case in cases] == [sodium(*case) for case in cases]
    assert [number for number, case in enumerate(cases) if openssl(*case) and not sodium(*case)] == list(SPECCHECK)
    assert not any(sodium(*case) and not openssl(*case) for case in cases)
