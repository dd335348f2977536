"""The gate in front of every decoder: one encoding of each value passes, everything else is refused by name."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol import Layer, RemoteError
from sapo_protocol.cbor import decode, encode
from sapo_protocol.limits import MAX_DEPTH, MAX_ITEMS

LIMIT = 1_000_000

values = st.recursive(
    st.integers(0, 2**64 - 1) | st.text() | st.binary() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_every_value_survives_a_round_trip(value):
    assert decode(encode(value), limit=LIMIT) == value


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_a_remote_error_or_are_their_values_only_encoding(data):
    try:
        value = decode(data, limit=LIMIT)
    except RemoteError:
        return
    assert encode(value) == data


REFUSED = {
    "empty input": "",
    "an integer in two bytes that fits one": "1817",
    "an integer in nine bytes that fits five": "1b00000000ffffffff",
    "a text length in two bytes that fits one": "780161",
    "an array length in two bytes that fits one": "980101",
    "a map length in two bytes that fits one": "b801616101",
    "a negative integer": "20",
    "a tag": "c001",
    "the self-described tag": "d9d9f701",
    "a bignum": "c249010000000000000000",
    "null": "f6",
    "undefined": "f7",
    "a half float": "f93c00",
    "a double": "fb3ff0000000000000",
    "a one-byte simple value": "f8ff",
    "an indefinite byte string": "5f4101ff",
    "an indefinite array": "9f01ff",
    "an indefinite map": "bf616101ff",
    "a break alone": "ff",
    "a reserved length": "1c",
    "trailing bytes": "0100",
    "a truncated head": "19ff",
    "a byte string that claims more than there is": "4401",
    "a byte string that claims 2^63 bytes": "5b8000000000000000",
    "an array that claims 2^40 items": "9b0000010000000000",
    "a map key that is an integer": "a10102",
    "a map key that is a byte string": "a1416101",
    "a map with keys out of order": "a2616201616101",
    "a map with a longer key first": "a262616101616102",
    "a map with a duplicate key": "a2616101616102",
    "invalid UTF-8": "61ff",
    "an overlong UTF-8 encoding": "62c080",
    "a UTF-8 surrogate": "63eda080",
    "nesting deeper than the limit": "81" * (MAX_DEPTH + 1) + "01",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_the_gate_refuses(data):
    with pytest.raises(RemoteError) as refusal:
        decode(bytes.fromhex(data), limit=LIMIT)
    assert refusal.value.layer is Layer.ENCODING


ACCEPTED = {
    "the largest integer": ("1bffffffffffffffff", 2**64 - 1),
    "an integer at the edge of one byte": ("1818", 24),
    "an empty map": ("a0", {}),
    "keys in order of their bytes": ("a2616101616202", {"a": 1, "b": 2}),
    "a shorter key before a longer one": ("a2617a0162616102", {"z": 1, "aa": 2}),
    "nesting at the limit": ("81" * MAX_DEPTH + "01", None),
    "text outside the first plane": ("64f09f9880", "\N{GRINNING FACE}"),
}


@pytest.mark.parametrize(("data", "value"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_the_gate_accepts(data, value):
    decoded = decode(bytes.fromhex(data), limit=LIMIT)
    assert value is None or decoded == value


def test_more_bytes_than_the_limit_are_refused():
    with pytest.raises(RemoteError) as refusal:
        decode(encode(b"x" * 100), limit=100)
    assert refusal.value.layer is Layer.ENCODING


def test_as_many_bytes_as_the_limit_pass():
    assert decode(encode(b"x" * 98), limit=100) == b"x" * 98


def test_more_items_than_the_limit_are_refused():
    with pytest.raises(RemoteError, match="items"):
        decode(encode([1] * MAX_ITEMS), limit=LIMIT)


def test_keys_that_collide_in_a_hash_table_never_reach_the_library():
    """400 KB of colliding integer keys take a plain decoder some twelve seconds (quadratic)."""
    pairs = b"".join(b"\x1b" + (k * (2**61 - 1)).to_bytes(8, "big") + b"\x00" for k in range(8))
    data = b"\xb9\x7d\x00" + pairs * 4_000
    before = time.process_time()
    with pytest.raises(RemoteError, match="not text"):
        decode(data, limit=LIMIT)
    assert time.process_time() - before < 1


def test_a_hundred_thousand_levels_are_refused_without_recursion():
    with pytest.raises(RemoteError, match="deeper"):
        decode(b"\x81" * 100_000, limit=LIMIT)
