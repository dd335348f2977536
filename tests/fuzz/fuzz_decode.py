"""The gate in front of CBOR: any bytes are refused with our own error, or are the one encoding of their value."""

import contextlib
from collections.abc import Iterator

from harness import Source, cbor_item, refusal_is_short

from sapo_protocol import RemoteError
from sapo_protocol.cbor import decode, encode

LIMIT = 65_536


def fuzz(data: bytes) -> None:
    source = Source(data)
    encoded = cbor_item(source) if source.number() & 1 else source.rest()
    with contextlib.suppress(RemoteError), refusal_is_short():
        value = decode(encoded, limit=LIMIT)
        assert encode(value) == encoded
        assert decode(encoded, limit=len(encoded)) == value


def seeds() -> Iterator[bytes]:
    for value in (0, 24, 2**64 - 1, "text \U0001f600", b"bytes", True, [], {}, {"a": 1, "bb": [False, {"c": b""}]}):
        yield b"\0" + encode(value)
    for depth in (8, 9):
        yield b"\0" + b"\x81" * depth + b"\0"
    for refused in ("1817", "20", "c001", "f6", "fb3ff0000000000000", "5f4101ff", "a2616201616101", "61ff", "0100"):
        yield b"\0" + bytes.fromhex(refused)
    for choice in range(16):
        yield bytes([1, choice, 1, 4, 97, 98, 99, 9, 2, 8, 4, 1, 1, 8])
