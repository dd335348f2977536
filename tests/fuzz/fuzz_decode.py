"""The gate in front of CBOR accepts exactly what a reader by the letter of the spec accepts, with the same values."""

from collections.abc import Iterator

from harness import Source, cbor_item, refusal_is_short

from sapo_protocol import RemoteError
from sapo_protocol.cbor import decode, encode
from sapo_protocol.limits import MAX_DEPTH, MAX_ITEMS

LIMIT = 65_536


class Implementation:
    """Deterministic CBOR read one rule at a time (spec: encoding), without a library. Raises ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position, self._items = data, 0, 0

    def whole(self) -> object:
        value = self._item(0)
        require(self._position == len(self._data), "ENC-1")
        return value

    def _take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        require(len(taken) == size, "ENC-1, ENC-10")
        self._position += size
        return taken

    def _item(self, depth: int) -> object:
        self._items += 1
        require(self._items <= MAX_ITEMS, "ENC-9")
        [initial] = self._take(1)
        major, argument = initial >> 5, initial & 31
        if initial in {0xF4, 0xF5}:
            return initial == 0xF5
        require(major in {0, 2, 3, 4, 5}, "ENC-2")
        if argument >= 24:
            require(argument < 28, "ENC-3")
            width = 1 << (argument - 24)
            argument = int.from_bytes(self._take(width), "big")
            require(argument >= (24 if width == 1 else 1 << 4 * width), "ENC-4")
        if major == 0:
            return argument
        if major in {2, 3}:
            content = self._take(argument)
            return content.decode() if major == 3 else content
        require(depth < MAX_DEPTH, "ENC-8")
        require(argument <= len(self._data), "ENC-10")
        if major == 4:
            return [self._item(depth + 1) for _ in range(argument)]
        return self._map(argument, depth + 1)

    def _map(self, size: int, depth: int) -> dict[str, object]:
        table: dict[str, object] = {}
        before = b""
        for _ in range(size):
            start = self._position
            key = self._item(depth)
            encoded = self._data[start : self._position]
            if not isinstance(key, str) or encoded <= before:
                raise ValueError("ENC-5, ENC-6")
            before = encoded
            table[key] = self._item(depth)
        return table


def require(condition: object, rule: str) -> None:
    if not condition:
        raise ValueError(rule)


def fuzz(data: bytes) -> None:
    source = Source(data)
    encoded = cbor_item(source) if source.number() & 1 else source.rest()
    try:
        expected = Implementation(encoded).whole()
    except ValueError:
        expected = None
    try:
        with refusal_is_short():
            value = decode(encoded, limit=LIMIT)
    except RemoteError:
        assert expected is None or len(encoded) > LIMIT
    else:
        assert repr(value) == repr(expected)
        assert encode(value) == encoded


def seeds() -> Iterator[bytes]:
    for value in (0, 24, 2**64 - 1, "text \U0001f600", b"bytes", True, [], {}, {"a": 1, "bb": [False, {"c": b""}]}):
        yield b"\0" + encode(value)
    for depth in (MAX_DEPTH, MAX_DEPTH + 1):
        yield b"\0" + b"\x81" * depth + b"\0"
    for items in (MAX_ITEMS - 1, MAX_ITEMS):
        yield b"\0" + encode([0] * items)
    for refused in (
        *("1817", "20", "c001", "f6", "fb3ff0000000000000", "5f4101ff", "61ff", "0100", "4401", "8201", "a10102"),
        *("a2616201616101", "a2616101616102", "b80161610a", "9b0000010000000000", "1c", "19ff", "a16161", "a1414100"),
    ):
        yield b"\0" + bytes.fromhex(refused)
    for choice in range(16):
        yield bytes([1, choice, 1, 4, 97, 98, 99, 9, 2, 8, 4, 1, 1, 8])
