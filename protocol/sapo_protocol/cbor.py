"""Deterministic CBOR (RFC 8949, section 4.2.1), and a gate that refuses everything else.

Payloads are built from unsigned integers, text, byte strings, booleans, arrays and maps with text keys.
A pre-scan walks the heads first, so that no library ever sees a tag, a float, a colliding integer key, deep nesting
or a length that claims more than there is. What passes is decoded by cbor2, and the decoded tree must encode to the
very bytes received: that one comparison refuses long integers, unsorted or duplicate keys and trailing bytes.
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
        raise RemoteError(Layer.SIZE, f"{len(data)} bytes, the limit is {limit}")
    _scan(data, layer)
    try:
        value: Value = cbor2.loads(data, max_depth=MAX_DEPTH + 1, allow_indefinite=False)
    except (cbor2.CBORDecodeError, UnicodeDecodeError, ValueError) as error:
        raise RemoteError(layer, f"not decodable: {error}") from error
    if encode(value) != data:
        raise RemoteError(layer, "not the deterministic encoding of its value")
    return value


def _scan(data: bytes, layer: Layer) -> None:
    """Walk the heads without building anything: allowed types, definite lengths, depth and counts within bounds."""
    position, items = 0, 0
    # Each open container: how many items it still owes, and whether it is a map whose next item is a key.
    open_containers: list[list[int]] = [[1, 0]]
    while open_containers:
        container = open_containers[-1]
        if container[0] == 0:
            open_containers.pop()
            continue
        items += 1
        if items > MAX_ITEMS:
            raise RemoteError(layer, f"more than {MAX_ITEMS} items")
        major, argument, position = _head(data, position, layer)
        is_map = container[1]
        if is_map and container[0] % 2 == 0 and major != _TEXT:
            raise RemoteError(layer, "a map key that is not text")
        container[0] -= 1
        if major in (_BYTES, _TEXT):
            position += argument
            if position > len(data):
                raise RemoteError(layer, "a string that claims more bytes than there are")
        elif major in (_ARRAY, _MAP):
            owed = argument * 2 if major == _MAP else argument
            # Each item takes at least one byte: a claim beyond that is false, whatever follows.
            if owed > len(data) - position:
                raise RemoteError(layer, "a container that claims more items than there are bytes")
            if len(open_containers) > MAX_DEPTH:
                raise RemoteError(layer, f"nested deeper than {MAX_DEPTH}")
            open_containers.append([owed, int(major == _MAP)])
    if position != len(data):
        raise RemoteError(layer, "bytes after the end")


def _head(data: bytes, position: int, layer: Layer) -> tuple[int, int, int]:
    """Major type, argument and the position after one head."""
    if position >= len(data):
        raise RemoteError(layer, "ends too early")
    initial = data[position]
    major, info = initial >> 5, initial & 0x1F
    if initial in (_FALSE, _TRUE):
        return _SIMPLE, 0, position + 1
    if major not in (_UINT, _BYTES, _TEXT, _ARRAY, _MAP):
        raise RemoteError(layer, f"a type that is not allowed (initial byte 0x{initial:02x})")
    if info < 24:
        return major, info, position + 1
    if info > 27:
        raise RemoteError(layer, "an indefinite or reserved length")
    end = position + 1 + (1 << (info - 24))
    if end > len(data):
        raise RemoteError(layer, "ends inside a head")
    return major, int.from_bytes(data[position + 1 : end], "big"), end
