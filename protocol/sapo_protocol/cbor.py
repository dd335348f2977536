"""Deterministic CBOR (RFC 8949, section 4.2.1), and a gate that refuses everything else.

Values are unsigned integers, text, byte strings, booleans, arrays and maps with text keys (spec: encoding).
A pre-scan walks the heads first, so that no library ever sees a tag, a float, a colliding integer key, deep nesting
or a length that claims more than there is. What passes is decoded by cbor2, and the decoded tree must encode to the
very bytes received: that one comparison refuses long integers and unsorted or duplicate keys.

What has one form only (message, envelope, header) is not decoded in general but compared with that form.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import cbor2

from .errors import Layer, RemoteError
from .limits import MAX_DEPTH, MAX_ITEMS

Value: TypeAlias = "int | str | bytes | bool | Sequence[Value] | Mapping[str, Value]"

_UINT, _BYTES, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 2, 3, 4, 5, 7
_FALSE, _TRUE = 0xF4, 0xF5


def encode(value: Value) -> bytes:
    """The one deterministic encoding of `value`.

    cbor2's canonical mode sorts keys length-first (RFC 7049); among text keys, the only ones here, that is the
    bytewise order of RFC 8949 too, because a longer key has a larger head.
    """
    return cbor2.dumps(value, canonical=True)


def decode(data: bytes, *, limit: int, layer: Layer = Layer.ENCODING) -> Value:
    """The value that `data` encodes, if it is at most `limit` bytes of deterministic CBOR; else RemoteError."""
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
    """Where the item that begins at `start` ends. Builds nothing.

    Raises RemoteError when it has types that are not allowed, indefinite lengths, keys that are not text, more levels
    than `depth`, or more items or bytes than there may be or are.
    """
    position, items = start, 0
    # Each open container: how many items it still owes, and whether it is a map, whose next item is a key.
    open_containers: list[list[int]] = [[1, 0]]
    while open_containers:
        container = open_containers[-1]
        if container[0] == 0:
            open_containers.pop()
            continue
        items += 1
        if items > MAX_ITEMS:  # ENC-9
            raise RemoteError(layer, f"more than {MAX_ITEMS} items")
        major, argument, position = _head(data, position, layer)
        is_map = container[1]
        if is_map and container[0] % 2 == 0 and major != _TEXT:  # ENC-5
            raise RemoteError(layer, "a map key that is not text")
        container[0] -= 1
        if major in (_BYTES, _TEXT):
            position += argument
            if position > len(data):  # ENC-10
                raise RemoteError(layer, "a string that claims more bytes than there are")
        elif major in (_ARRAY, _MAP):
            owed = argument * 2 if major == _MAP else argument
            if owed > len(data) - position:  # ENC-10
                raise RemoteError(layer, "a container that claims more items than there are bytes")
            if len(open_containers) > depth:  # ENC-8
                raise RemoteError(layer, f"nested deeper than {depth}")
            open_containers.append([owed, int(major == _MAP)])
    return position


def _head(data: bytes, position: int, layer: Layer) -> tuple[int, int, int]:
    """Major type, argument and the position after one head."""
    if position >= len(data):  # ENC-1
        raise RemoteError(layer, "ends too early")
    initial = data[position]
    major, info = initial >> 5, initial & 0x1F
    if initial in (_FALSE, _TRUE):
        return _SIMPLE, 0, position + 1
    if major not in (_UINT, _BYTES, _TEXT, _ARRAY, _MAP):  # ENC-2
        raise RemoteError(layer, f"a type that is not allowed (initial byte 0x{initial:02x})")
    if info < 24:
        return major, info, position + 1
    if info > 27:  # ENC-3
        raise RemoteError(layer, "an indefinite or reserved length")
    end = position + 1 + (1 << (info - 24))
    if end > len(data):  # ENC-1
        raise RemoteError(layer, "ends inside a head")
    return major, int.from_bytes(data[position + 1 : end], "big"), end


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
        raise RemoteError(layer, "a byte string that claims more bytes than there are")
    return data[start:end], end
