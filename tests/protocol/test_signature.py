"""The accepted set of Ed25519 signatures, held against public test vectors where they are at hand."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_protocol import verify_signature

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"
L = 2**252 + 27742317777372353535851937790883648493
P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P


def vectors(name):
    path = VECTORS / name
    if not path.exists():
        pytest.skip(f"the public vectors {name} are not at hand beside the repository (../shared/vectors)")
    return json.loads(path.read_text())


def test_all_wycheproof_cases_agree():
    for group in vectors("wycheproof_ed25519.json")["testGroups"]:
        key = bytes.fromhex(group["publicKey"]["pk"])
        for case in group["tests"]:
            verdict = verify_signature(key, bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]))
            assert verdict is (case["result"] == "valid"), case["comment"]


def test_of_the_twelve_speccheck_cases_exactly_number_three_is_accepted():
    accepted = [
        number
        for number, case in enumerate(vectors("speccheck_ed25519.json"))
        if verify_signature(*(bytes.fromhex(case[part]) for part in ("pub_key", "message", "signature")))
    ]
    assert accepted == [3]


def _sqrt(square):
    root = pow(square, (P + 3) // 8, P)
    return root if root * root % P == square else root * pow(2, (P - 1) // 4, P) % P


def low_order_encodings():
    """The fourteen byte strings that some library decodes to a point of small order, canonical and not."""
    # y of the points of order eight: y^4 = -1/d, from x^2 = -y^2 on that orbit
    roots = {0, 1, P - 1}
    u = _sqrt((1 + D) % P)
    for sign in (1, -1):
        square = (1 + sign * u) * pow(D, P - 2, P) % P
        y = _sqrt(square)
        if y * y % P == square:
            roots |= {y, P - y}
    ys = roots | {P, P + 1}
    return {(y | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)}


def test_a_small_order_key_signs_nothing():
    encodings = low_order_encodings()
    assert len(encodings) == 14
    for key in encodings:
        for r in encodings:
            assert not verify_signature(key, b"any message", r + bytes(32))


def test_s_plus_l_is_refused():
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    signature = key.sign(b"message")
    s = int.from_bytes(signature[32:], "little") + L
    public = key.public_key().public_bytes_raw()
    assert verify_signature(public, b"message", signature)
    assert not verify_signature(public, b"message", signature[:32] + s.to_bytes(32, "little"))


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length):
    assert not verify_signature(bytes(length), b"", bytes(64))


@pytest.mark.parametrize("length", [0, 63, 65, 128])
def test_a_signature_of_another_length_is_refused(length):
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    assert not verify_signature(key.public_key().public_bytes_raw(), b"m", key.sign(b"m").ljust(128, b"\0")[:length])


def test_no_single_flipped_bit_is_accepted():
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"message")
    for bit in range(512):
        flipped = (int.from_bytes(signature, "big") ^ 1 << bit).to_bytes(64, "big")
        assert not verify_signature(public, b"message", flipped)
