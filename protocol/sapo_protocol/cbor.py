"""Deterministic CBOR (RFC 8949, section 4.2.1). Refuses every other encoding.

Values are unsigned integers, text, byte strings, booleans, arrays and maps with text keys (spec: encoding).
`decode` first scans the heads and refuses tags, floats, keys that are not text, deep nesting and lengths beyond the
end, so cbor2 never reads them. It then decodes with cbor2, encodes the value again and compares: that refuses integers
that are not in their shortest form, and unsorted or duplicate keys.

Message, envelope and header have one form each. Their modules compare bytes with that form and do not use `decode`.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import cbor2

from .errors import Layer, RemoteError
from .limits import MAX_DEPTH, MAX_ITEMS

Value: TypeAlias = "int | str | bytes | bool | Sequence[Value] | Mapping[str, Value]"

_UINT, _BYTES, _TEXT, _ARRAY, _MAP = _ALLOWED = (0, 2, 3, 4, 5)
_FALSE, _TRUE = 0xF4, 0xF5
_ONE_BYTE = 24
"""Arguments below this are part of the head's first byte."""
_ARGUMENT_BYTES = {24: 1, 25: 2, 26: 4, 27: 8}


def encode(value: Value) -> bytes:
    """The one deterministic encoding of `value`.

    cbor2's canonical mode sorts keys length-first (RFC 7049). All keys here are text, and a longer text has a larger
    head, so this is also the bytewise order of RFC 8949.
    """
    return cbor2.dumps(value, canonical=True)


def decode(data: bytes, *, limit: int, layer: Layer = Layer.ENCODING) -> Value:
    """The value of at most `limit` bytes of deterministic CBOR. Raises RemoteError (`layer`) for anything else."""
    if len(data) > limit:
        raise RemoteError(layer, f"{len(data)} bytes, the limit is {limit}")
    if end_of_item(data, 0, layer) != len(data):
        raise RemoteError(layer, "bytes after the end")  # ENC-1
    try:
        value: Value = cbor2.loads(data, max_depth=MAX_DEPTH + 1, allow_indefinite=False)
    except (cbor2.CBORDecodeError, UnicodeDecodeError, ValueError) as error:  # ENC-7
        raise RemoteError(layer, f"not decodable: {error}") from error
    if encode(value) != data:  # ENC-4, ENC-6
        raise RemoteError(layer, "not the deterministic encoding of its value")
    return value


def end_of_item(data: bytes, start: int, layer: Layer, *, depth: int = MAX_DEPTH) -> int:
    """The position after the item that begins at `start`. Builds no values.

    Raises RemoteError for types that are not allowed, indefinite lengths, keys that are not text, more than `depth`
    levels, more than MAX_ITEMS items, or lengths beyond the end.
    """
    position, size = start, len(data)
    remaining, is_map = 1, False  # items still to come in this container, and whether every second one is a key
    outer: list[tuple[int, bool]] = []
    for _ in range(MAX_ITEMS):
        if position >= size:  # ENC-1
            raise RemoteError(layer, "ends too early")
        initial = data[position]
        major, argument = initial >> 5, initial & 0x1F
        if is_map and remaining % 2 == 0 and major != _TEXT:  # ENC-5
            raise RemoteError(layer, "a map key that is not text")
        position += 1
        remaining -= 1
        if argument >= _ONE_BYTE:
            argument, position = _argument(data, position, initial, layer)
        if major in (_BYTES, _TEXT):
            position += argument
        elif major in (_ARRAY, _MAP):
            if len(outer) >= depth:  # ENC-8
                raise RemoteError(layer, f"nested deeper than {depth}")
            outer.append((remaining, is_map))
            is_map = major == _MAP
            remaining = argument * 2 if is_map else argument
        elif major != _UINT and initial not in (_FALSE, _TRUE):  # ENC-2
            raise RemoteError(layer, f"a type that is not allowed (initial byte 0x{initial:02x})")
        if remaining > size - position:  # ENC-10: each item takes at least one byte
            raise RemoteError(layer, "claims more than the bytes that remain")
        while remaining == 0:
            if not outer:
                return position
            remaining, is_map = outer.pop()
    raise RemoteError(layer, f"more than {MAX_ITEMS} items")  # ENC-9


def _argument(data: bytes, position: int, initial: int, layer: Layer) -> tuple[int, int]:
    """The argument of a head that does not hold it in its first byte, and the position after the head."""
    if initial >> 5 not in _ALLOWED:  # ENC-2
        raise RemoteError(layer, f"a type that is not allowed (initial byte 0x{initial:02x})")
    width = _ARGUMENT_BYTES.get(initial & 0x1F)
    if width is None:  # ENC-3
        raise RemoteError(layer, "an indefinite or reserved length")
    end = position + width
    if end > len(data):  # ENC-1
        raise RemoteError(layer, "ends inside a head")
    return int.from_bytes(data[position:end], "big"), end


_SHORT = 0x40 + 24
_WIDTHS = {0x58: (1, 24), 0x59: (2, 1 << 8), 0x5A: (4, 1 << 16)}
"""Byte string heads of one, two and four bytes of length, and the least length that needs them."""


def read_byte_string(data: bytes, position: int, layer: Layer) -> tuple[bytes, int]:
    """The content of the byte string at `position` and the position after it. Raises RemoteError for anything else."""
    initial = data[position] if position < len(data) else 0
    if 0x40 <= initial < _SHORT:
        start, length = position + 1, initial - 0x40
    elif initial in _WIDTHS:
        width, least = _WIDTHS[initial]
        start = position + 1 + width
        length = int.from_bytes(data[position + 1 : start], "big")
        if length < least:
            raise RemoteError(layer, "a length that is not in its shortest form")
    else:
        raise RemoteError(layer, "a byte string was expected")
    end = start + length
    if end > len(data):
        raise RemoteError(layer, "a byte string that claims more than the bytes that remain")
    return data[start:end], end
