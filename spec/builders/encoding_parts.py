"""Parts of the cases of kind `encoding`."""

from collections.abc import Callable

from cases import ACCEPT, Case
from wire import ARRAY, BYTES, MAP, TEXT, text, uint

WIDTHS = {0: "in the head", 1: "in one byte", 2: "in two bytes", 4: "in four bytes", 8: "in eight bytes"}
LONGEST = 2**64 - 1


def integers(count: int) -> bytes:
    return uint(0) * count


def pairs(count: int) -> bytes:
    """Keys of three letters, in order, each with a value: two items a pair."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    keys = (letters[n // 676] + letters[n // 26 % 26] + letters[n % 26] for n in range(count))
    return b"".join(text(key) + uint(0) for key in keys)


SIZED: dict[int, tuple[str, Callable[[int], bytes]]] = {
    BYTES: ("a byte string", bytes),
    TEXT: ("a text", lambda length: b"a" * length),
    ARRAY: ("an array", integers),
    MAP: ("a map", pairs),
}


def case(name: str, rule: str, data: bytes, expect: str = "encoding", note: str = "") -> Case:
    return Case(name, rule, "encoding", {"bytes": data}, expect, note=note)


def passes(name: str, rule: str, data: bytes, note: str = "") -> Case:
    return case(name, rule, data, ACCEPT, note)
