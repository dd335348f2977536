"""Cases of kind `encoding`: one item, checked alone (ENC-1 to ENC-10)."""

from collections.abc import Iterable, Iterator

import encoding_limits
import encoding_text
from cases import Case
from encoding_parts import LONGEST, SIZED, WIDTHS, case, passes
from wire import ARRAY, FALSE, MAP, NULL, TAG, TEXT, TRUE, UINT, UNDEFINED, array, bstr, head, table, text, uint

EXAMPLE = table(("x", array([uint(0), TRUE, bstr(b"")])), ("id", uint(24)))


def cases() -> Iterable[Case]:
    yield from _whole()
    yield from _truncated()
    yield from _types()
    yield from _indefinite()
    yield from _reserved()
    yield from _widths()
    yield from _long_forms()
    yield from _keys()
    yield from _key_order()
    yield from encoding_text.cases()
    yield from encoding_limits.cases()


def _whole() -> Iterator[Case]:
    yield passes("a map with keys in order", "ENC-1", EXAMPLE)
    yield case("no bytes", "ENC-1", b"")
    yield case("two items", "ENC-1", uint(0) + uint(0))
    yield case("a map and a zero byte", "ENC-1", EXAMPLE + b"\x00")
    yield case("a map and a line feed", "ENC-1", EXAMPLE + b"\n")
    yield case("an empty array and one more", "ENC-1", array([]) + array([]))


def _truncated() -> Iterator[Case]:
    for length in range(1, len(EXAMPLE)):
        yield case(f"a map cut after byte {length}", "ENC-1", EXAMPLE[:length])
    for width in (1, 2, 4, 8):
        cut = head(UINT, LONGEST >> 64 - 8 * width, width)[:-1]
        yield case(f"an integer {WIDTHS[width]} without its last byte", "ENC-1", cut)
    for major, (what, _) in SIZED.items():
        yield case(f"{what} whose length is cut", "ENC-1", head(major, 256)[:-1])
    yield case("an array whose last item is missing", "ENC-1", array([bstr(b"ab"), b""]))
    yield case("a map whose last value is missing", "ENC-1", table(("a", b"")))


def _types() -> Iterator[Case]:
    yield passes("false", "ENC-2", FALSE)
    yield passes("true", "ENC-2", TRUE)
    yield passes("one of each type", "ENC-2", array([uint(1), bstr(b"a"), text("a"), array([]), table(), FALSE, TRUE]))

    refused = {
        "minus one": "20",
        "minus 24": "37",
        "minus 25": "38 18",
        "minus 256": "38 ff",
        "minus 2 to the 64": "3b ffffffffffffffff",
        "tag 0 on a date": "c0 74 323031332d30332d32315432303a30343a30305a",
        "tag 1 on a time": "c1 00",
        "tag 2 on a number that fits an integer": "c2 41 01",
        "tag 2 on the number 2 to the 64": "c2 49 010000000000000000",
        "tag 3 on minus one": "c3 41 00",
        "tag 4 on a decimal fraction": "c4 82 00 01",
        "tag 18 on an integer": "d2 00",
        "tag 24 on an encoded item": "d8 18 41 00",
        "tag 28 on an array": "d8 1c 80",
        "tag 258 on an array": "d9 0102 80",
        "tag 55799 on an integer": "d9 d9f7 00",
        "the last tag on an integer": "db ffffffffffffffff 00",
        "a half float of zero": "f9 0000",
        "a half float of one": "f9 3c00",
        "a half float of one and a half": "f9 3e00",
        "a half float that is not a number": "f9 7e00",
        "a half float of infinity": "f9 7c00",
        "a single float of one": "fa 3f800000",
        "a single float that is not a number": "fa 7fc00000",
        "a double float of one": "fb 3ff0000000000000",
        "a double float that is not a number": "fb 7ff8000000000000",
        "null": "f6",
        "undefined": "f7",
        "simple value 0": "e0",
        "simple value 19": "f3",
        "simple value 0 in two bytes": "f8 00",
        "false in two bytes": "f8 14",
        "true in two bytes": "f8 15",
        "null in two bytes": "f8 16",
        "simple value 24 in two bytes": "f8 18",
        "simple value 32": "f8 20",
        "simple value 255": "f8 ff",
    }
    for name, data in refused.items():
        yield case(name, "ENC-2", bytes.fromhex(data))
    inner = {"null": NULL, "undefined": UNDEFINED, "a float": b"\xf9\x3c\x00", "a tag": head(TAG, 24) + bstr(b"\x00")}
    for name, data in inner.items():
        yield case(f"{name} in an array", "ENC-2", array([uint(0), data]))
        yield case(f"{name} as a value in a map", "ENC-2", table(("a", data)))


def _indefinite() -> Iterator[Case]:
    yield passes("lengths all definite", "ENC-3", array([bstr(b"ab"), text("ab"), array([]), table()]))
    stop = b"\xff"
    refused = {
        "an indefinite byte string": b"\x5f" + bstr(b"a") + bstr(b"b") + stop,
        "an indefinite byte string without parts": b"\x5f" + stop,
        "an indefinite text": b"\x7f" + text("a") + text("b") + stop,
        "an indefinite text without parts": b"\x7f" + stop,
        "an indefinite array": b"\x9f" + uint(0) + stop,
        "an indefinite array without items": b"\x9f" + stop,
        "an indefinite map": b"\xbf" + text("a") + uint(0) + stop,
        "an indefinite map without pairs": b"\xbf" + stop,
        "an indefinite array in an array": array([b"\x9f" + stop]),
        "an indefinite text as a key": head(MAP, 1) + b"\x7f" + text("a") + stop + uint(0),
        "an integer of indefinite length": b"\x1f",
        "a break by itself": stop,
        "a break in a definite array": head(ARRAY, 2) + uint(0) + stop,
        "a break in place of a value": table(("a", stop)),
    }
    for name, data in refused.items():
        yield case(name, "ENC-3", data)


def _reserved() -> Iterator[Case]:
    note = (
        "What follows is as long as a reader would expect that took the additional information for the number itself."
    )
    for information in (28, 29, 30):
        name = f"additional information {information}"
        yield case(f"{name} in an integer", "ENC-3", bytes([information]))
        for major, (what, content) in SIZED.items():
            data = bytes([major << 5 | information]) + content(information)
            yield case(f"{name} in {what}", "ENC-3", data, note=note)
        yield case(f"{name} in a simple value", "ENC-3", bytes([7 << 5 | information]))


def _widths() -> Iterator[Case]:
    for number in (0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 + 1, 2**63, LONGEST):
        yield passes(f"the integer {number}", "ENC-4", uint(number))
    for major, (what, content) in SIZED.items():
        for length in (0, 23, 24, 255, 256):
            yield passes(f"{what} of {length}", "ENC-4", head(major, length) + content(length))
    for length in (65_535, 65_536):
        yield passes(f"a byte string of {length}", "ENC-4", bstr(bytes(length)))


def _long_forms() -> Iterator[Case]:
    largest = {0: 23, 1: 255, 2: 65_535, 4: 2**32 - 1}
    previous = {1: 0, 2: 1, 4: 2, 8: 4}
    for width, fits in previous.items():
        number = largest[fits]
        yield case(f"{number} {WIDTHS[width]}", "ENC-4", head(UINT, number, width))
        yield case(f"zero {WIDTHS[width]}", "ENC-4", head(UINT, 0, width))
        for major, (what, content) in SIZED.items():
            length = min(largest[fits], 255)
            name = f"{what} length {WIDTHS[width]} that fits {WIDTHS[min(fits, 1)]}"
            yield case(name, "ENC-4", head(major, length, width) + content(length))
    long_key = head(MAP, 1) + head(TEXT, 1, 1) + b"a" + uint(0)
    yield case("a key with a longer head", "ENC-4", long_key)
    yield case("a longer integer within an array", "ENC-4", array([uint(0), head(UINT, 1, 2)]))


def _keys() -> Iterator[Case]:
    yield passes("a map with a key of text", "ENC-5", table(("a", uint(0))))
    keys = {
        "an integer": uint(0),
        "a byte string": bstr(b"a"),
        "an empty byte string": bstr(b""),
        "a boolean": TRUE,
        "an array": array([text("a")]),
        "a map": table(("a", uint(0))),
    }
    for name, key in keys.items():
        yield case(f"{name} as a key", "ENC-5", head(MAP, 1) + key + uint(0))
    yield case("an integer key before a key of text", "ENC-5", head(MAP, 2) + uint(1) + uint(0) + text("a") + uint(0))
    colliding = b"".join(uint(n << 52) + uint(0) for n in range(1000))
    note = "They fall into one place of a hash table that looks at the low bits."
    yield case("a thousand integer keys that collide", "ENC-5", head(MAP, 1000) + colliding, note=note)


def _map(*keys: str) -> bytes:
    return table(*((key, uint(0)) for key in keys))


def _key_order() -> Iterator[Case]:
    def ordered(name: str, *keys: str, note: str = "") -> Iterator[Case]:
        yield passes(f"{name} as keys in order", "ENC-6", _map(*keys), note)
        yield case(f"{name} as keys out of order", "ENC-6", _map(*reversed(keys)), note=note)

    yield from ordered("two letters", "a", "b")
    yield from ordered("a capital and a small letter", "B", "a")
    yield from ordered("a letter and two letters", "b", "aa", note="The head of a key belongs to its encoding.")
    yield from ordered("a text and a longer one", "a", "ab")
    yield from ordered("no letter and one letter", "", "a")
    yield from ordered("texts of 23 and 24 bytes", "z" * 23, "a" * 24)
    yield from ordered("texts of 255 and 256 bytes", "z" * 255, "a" * 256)
    yield from ordered("2 and 10", "2", "10")
    yield from ordered("10 and 11", "10", "11")
    yield from ordered("u0000 and a letter", "\0", "a")
    yield from ordered(
        "two characters and one of two bytes", "zz", "é", note="Two bytes each, though one is a single character."
    )
    yield from ordered(
        "characters beyond 16 bits", "\ufffda", "\U00010000", note="Four bytes each; in UTF-16 the order is the other."
    )
    yield from ordered("texts that look alike", "\u00e9", "e\u0301", note="They look alike and are two keys.")
    yield passes("keys that mean something to some languages", "ENC-6", _map("__proto__", "constructor"))
    yield passes("one key in two maps", "ENC-6", table(("a", _map("a")), ("b", _map("a"))))

    yield case("the first two of three keys swapped", "ENC-6", _map("b", "a", "c"))
    yield case("the last two of three keys swapped", "ENC-6", _map("a", "c", "b"))
    yield case("keys out of order in an inner map", "ENC-6", table(("a", _map("b", "a"))))
    yield case("keys out of order in an array", "ENC-6", array([_map("b", "a")]))
    yield case("a key twice", "ENC-6", _map("a", "a"))
    yield case("a key twice with two values", "ENC-6", table(("a", uint(0)), ("a", uint(1))))
    yield case("the empty key twice", "ENC-6", _map("", ""))
    yield case("a key twice at the end", "ENC-6", _map("a", "b", "b"))
