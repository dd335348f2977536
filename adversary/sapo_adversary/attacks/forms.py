"""Invalid forms of CBOR: other encodings of a value, and heads that state a length that does not follow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BYTES, TEXT, ARRAY, MAP = 2, 3, 4, 5
"""Major types."""
_BREAK = b"\xff"


@dataclass(frozen=True, slots=True)
class Form:
    """One way to encode a value that decodes to the same value."""

    wide_numbers: bool = False
    """Integers in nine bytes."""
    wide_lengths: bool = False
    """Lengths and counts in nine bytes."""
    descending: bool = False
    """Map keys from the last to the first."""
    repeated: bool = False
    """Each map says its last pair twice."""
    endless: bool = False
    """Arrays and maps of indefinite length."""
    chunked: bool = False
    """Strings in chunks."""


FORMS: Mapping[str, Form] = {
    "long integers": Form(wide_numbers=True),
    "long lengths": Form(wide_lengths=True),
    "other key order": Form(descending=True),
    "repeated keys": Form(repeated=True),
    "indefinite containers": Form(endless=True),
    "chunked strings": Form(chunked=True),
}


def encode_as(value: Any, form: Form) -> bytes:
    """A tree of integers, strings, booleans, lists and maps with text keys, in a form that the standard forbids."""
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return head(0, value, wide=form.wide_numbers)
    if isinstance(value, str):
        return _string(TEXT, value.encode(), form)
    if isinstance(value, bytes):
        return _string(BYTES, value, form)
    if isinstance(value, Mapping):
        pairs = sorted(value.items(), key=lambda pair: (len(pair[0]), pair[0]), reverse=form.descending)
        pairs += pairs[-1:] if form.repeated else []
        items = [encode_as(item, form) for pair in pairs for item in pair]
        return _container(MAP, len(pairs), items, form)
    return _container(ARRAY, len(value), [encode_as(item, form) for item in value], form)


def head(major: int, number: int, *, wide: bool = False) -> bytes:
    """The head of an item: nine bytes long if `wide`, otherwise the shortest."""
    if number < 24 and not wide:
        return bytes([major << 5 | number])
    width = 3 if wide else next(width for width in range(4) if number < 2 ** (8 * 2**width))
    return bytes([major << 5 | 24 + width]) + number.to_bytes(2**width, "big")


def with_x(encoded: bytes, x: bytes) -> bytes:
    """An encoded map with `x` added, which sorts first; so whatever is wrong with the result is wrong in `x`."""
    return bytes([encoded[0] + 1]) + b"\x61x" + x + encoded[1:]


def _string(major: int, content: bytes, form: Form) -> bytes:
    if not form.chunked:
        return head(major, len(content), wide=form.wide_lengths) + content
    middle = len(content) // 2
    chunks = (content[:middle], content[middle:]) if content.isascii() or major == BYTES else (content,)
    return bytes([major << 5 | 31]) + b"".join(head(major, len(each)) + each for each in chunks) + _BREAK


def _container(major: int, count: int, items: list[bytes], form: Form) -> bytes:
    if form.endless:
        return bytes([major << 5 | 31]) + b"".join(items) + _BREAK
    return head(major, count, wide=form.wide_lengths) + b"".join(items)
