"""Cases of kind `encoding`: one item, judged by itself (ENC-1 to ENC-10)."""

from collections.abc import Callable, Iterable, Iterator

from cases import ACCEPT, Case
from wire import ARRAY, BYTES, FALSE, MAP, NULL, TAG, TEXT, TRUE, UINT, UNDEFINED, array, bstr, head, table, text, uint

EXAMPLE = table(("x", array([uint(0), TRUE, bstr(b"")])), ("id", uint(24)))
WIDTHS = {0: "in the head", 1: "in one byte", 2: "in two bytes", 4: "in four bytes", 8: "in eight bytes"}
LONGEST = 2**64 - 1


def _integers(count: int) -> bytes:
    return uint(0) * count


def _pairs(count: int) -> bytes:
    """Keys of three letters, in order, each with a value: two items a pair."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    keys = (letters[n // 676] + letters[n // 26 % 26] + letters[n % 26] for n in range(count))
    return b"".join(text(key) + uint(0) for key in keys)


SIZED: dict[int, tuple[str, Callable[[int], bytes]]] = {
    BYTES: ("a byte string", bytes),
    TEXT: ("a text", lambda length: b"a" * length),
    ARRAY: ("an array", _integers),
    MAP: ("a map", _pairs),
}


def _case(name: str, rule: str, data: bytes, expect: str = "encoding", note: str = "") -> Case:
    return Case(name, rule, "encoding", {"bytes": data}, expect, note=note)


def _passes(name: str, rule: str, data: bytes, note: str = "") -> Case:
    return _case(name, rule, data, ACCEPT, note)


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
    yield from _well_formed_text()
    yield from _ill_formed_text()
    yield from _depth()
    yield from _count()
    yield from _claims()


def _whole() -> Iterator[Case]:
    yield _passes("a map with keys in order", "ENC-1", EXAMPLE)
    yield _case("no bytes", "ENC-1", b"")
    yield _case("two items", "ENC-1", uint(0) + uint(0))
    yield _case("a map and a zero byte", "ENC-1", EXAMPLE + b"\x00")
    yield _case("a map and a line feed", "ENC-1", EXAMPLE + b"\n")
    yield _case("an empty array and one more", "ENC-1", array([]) + array([]))


def _truncated() -> Iterator[Case]:
    for length in range(1, len(EXAMPLE)):
        yield _case(f"a map cut after byte {length}", "ENC-1", EXAMPLE[:length])
    for width in (1, 2, 4, 8):
        cut = head(UINT, LONGEST >> 64 - 8 * width, width)[:-1]
        yield _case(f"an integer {WIDTHS[width]} without its last byte", "ENC-1", cut)
    for major, (what, _) in SIZED.items():
        yield _case(f"{what} whose length is cut", "ENC-1", head(major, 256)[:-1])
    yield _case("an array whose last item is missing", "ENC-1", array([bstr(b"ab"), b""]))
    yield _case("a map whose last value is missing", "ENC-1", table(("a", b"")))


def _types() -> Iterator[Case]:
    yield _passes("false", "ENC-2", FALSE)
    yield _passes("true", "ENC-2", TRUE)
    yield _passes("one of each type", "ENC-2", array([uint(1), bstr(b"a"), text("a"), array([]), table(), FALSE, TRUE]))

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
        yield _case(name, "ENC-2", bytes.fromhex(data))
    inner = {"null": NULL, "undefined": UNDEFINED, "a float": b"\xf9\x3c\x00", "a tag": head(TAG, 24) + bstr(b"\x00")}
    for name, data in inner.items():
        yield _case(f"{name} in an array", "ENC-2", array([uint(0), data]))
        yield _case(f"{name} as a value in a map", "ENC-2", table(("a", data)))


def _indefinite() -> Iterator[Case]:
    yield _passes("lengths all definite", "ENC-3", array([bstr(b"ab"), text("ab"), array([]), table()]))
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
        yield _case(name, "ENC-3", data)


def _reserved() -> Iterator[Case]:
    note = (
        "What follows is as long as a reader would expect that took the additional information for the number itself."
    )
    for information in (28, 29, 30):
        name = f"additional information {information}"
        yield _case(f"{name} in an integer", "ENC-3", bytes([information]))
        for major, (what, content) in SIZED.items():
            data = bytes([major << 5 | information]) + content(information)
            yield _case(f"{name} in {what}", "ENC-3", data, note=note)
        yield _case(f"{name} in a simple value", "ENC-3", bytes([7 << 5 | information]))


def _widths() -> Iterator[Case]:
    for number in (0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 + 1, 2**63, LONGEST):
        yield _passes(f"the integer {number}", "ENC-4", uint(number))
    for major, (what, content) in SIZED.items():
        for length in (0, 23, 24, 255, 256):
            yield _passes(f"{what} of {length}", "ENC-4", head(major, length) + content(length))
    for length in (65_535, 65_536):
        yield _passes(f"a byte string of {length}", "ENC-4", bstr(bytes(length)))


def _long_forms() -> Iterator[Case]:
    largest = {0: 23, 1: 255, 2: 65_535, 4: 2**32 - 1}
    previous = {1: 0, 2: 1, 4: 2, 8: 4}
    for width, fits in previous.items():
        number = largest[fits]
        yield _case(f"{number} {WIDTHS[width]}", "ENC-4", head(UINT, number, width))
        yield _case(f"zero {WIDTHS[width]}", "ENC-4", head(UINT, 0, width))
        for major, (what, content) in SIZED.items():
            length = min(largest[fits], 255)
            name = f"{what} length {WIDTHS[width]} that fits {WIDTHS[min(fits, 1)]}"
            yield _case(name, "ENC-4", head(major, length, width) + content(length))
    long_key = head(MAP, 1) + head(TEXT, 1, 1) + b"a" + uint(0)
    yield _case("a key with a longer head", "ENC-4", long_key)
    yield _case("a longer integer within an array", "ENC-4", array([uint(0), head(UINT, 1, 2)]))


def _keys() -> Iterator[Case]:
    yield _passes("a map with a key of text", "ENC-5", table(("a", uint(0))))
    keys = {
        "an integer": uint(0),
        "a byte string": bstr(b"a"),
        "an empty byte string": bstr(b""),
        "a boolean": TRUE,
        "an array": array([text("a")]),
        "a map": table(("a", uint(0))),
    }
    for name, key in keys.items():
        yield _case(f"{name} as a key", "ENC-5", head(MAP, 1) + key + uint(0))
    yield _case("an integer key before a key of text", "ENC-5", head(MAP, 2) + uint(1) + uint(0) + text("a") + uint(0))
    colliding = b"".join(uint(n << 52) + uint(0) for n in range(1000))
    note = "They fall into one place of a hash table that looks at the low bits."
    yield _case("a thousand integer keys that collide", "ENC-5", head(MAP, 1000) + colliding, note=note)


def _map(*keys: str) -> bytes:
    return table(*((key, uint(0)) for key in keys))


def _key_order() -> Iterator[Case]:
    def ordered(name: str, *keys: str, note: str = "") -> Iterator[Case]:
        yield _passes(f"{name} as keys in order", "ENC-6", _map(*keys), note)
        yield _case(f"{name} as keys out of order", "ENC-6", _map(*reversed(keys)), note=note)

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
    yield _passes("keys that mean something to some languages", "ENC-6", _map("__proto__", "constructor"))
    yield _passes("one key in two maps", "ENC-6", table(("a", _map("a")), ("b", _map("a"))))

    yield _case("the first two of three keys swapped", "ENC-6", _map("b", "a", "c"))
    yield _case("the last two of three keys swapped", "ENC-6", _map("a", "c", "b"))
    yield _case("keys out of order in an inner map", "ENC-6", table(("a", _map("b", "a"))))
    yield _case("keys out of order in an array", "ENC-6", array([_map("b", "a")]))
    yield _case("a key twice", "ENC-6", _map("a", "a"))
    yield _case("a key twice with two values", "ENC-6", table(("a", uint(0)), ("a", uint(1))))
    yield _case("the empty key twice", "ENC-6", _map("", ""))
    yield _case("a key twice at the end", "ENC-6", _map("a", "b", "b"))


WELL_FORMED = {
    "U+0000": "\0",
    "U+007F": "\x7f",
    "U+0080": "\x80",
    "U+07FF": "\u07ff",
    "U+0800": "\u0800",
    "U+D7FF": "\ud7ff",
    "U+E000": "\ue000",
    "U+FEFF": "\ufeff",
    "U+FFFD": "\ufffd",
    "U+FFFE": "\ufffe",
    "U+FFFF": "\uffff",
    "U+10000": "\U00010000",
    "U+10FFFF": "\U0010ffff",
    "U+FEFF and a letter": "\ufeffa",
    "characters that are not normalised": "e\u0301",
    "characters that join": "\U0001f469\u200d\U0001f4bb",
    "a character that turns the direction": "\u202ea",
}


def _named(name: str) -> str:
    return name.replace("U+", "u").lower()


def _well_formed_text() -> Iterator[Case]:
    for name, content in WELL_FORMED.items():
        yield _passes(f"text of {_named(name)}", "ENC-7", text(content))
    yield _passes("a byte string that is not utf-8", "ENC-7", bstr(b"\xff"))


ILL_FORMED = {
    "an overlong form of two bytes for U+0000": "c0 80",
    "an overlong form of two bytes for U+007F": "c1 bf",
    "an overlong form of three bytes for U+0000": "e0 80 80",
    "an overlong form of three bytes for U+07FF": "e0 9f bf",
    "an overlong form of four bytes for U+0000": "f0 80 80 80",
    "an overlong form of four bytes for U+FFFF": "f0 8f bf bf",
    "the first high surrogate": "ed a0 80",
    "the last high surrogate": "ed af bf",
    "the first low surrogate": "ed b0 80",
    "the last low surrogate": "ed bf bf",
    "a pair of surrogates": "ed a0 bd ed b8 80",
    "a form of four bytes for U+110000": "f4 90 80 80",
    "a form of four bytes for U+140000": "f5 80 80 80",
    "a form of four bytes for U+1FFFFF": "f7 bf bf bf",
    "a form of five bytes": "f8 88 80 80 80",
    "a form of six bytes": "fc 84 80 80 80 80",
    "the byte fe": "fe",
    "the byte ff": "ff",
    "a lone continuation byte": "80",
    "the last continuation byte alone": "bf",
    "a continuation byte too many": "c3 a9 80",
    "a sequence of two cut": "c3",
    "a sequence of three cut after one": "e2",
    "a sequence of three cut after two": "e2 82",
    "a sequence of four cut after one": "f0",
    "a sequence of four cut after two": "f0 9f",
    "a sequence of four cut after three": "f0 9f 98",
    "a sequence of two broken off": "c3 28",
    "a sequence of three broken off": "e2 82 28",
    "a sequence of four broken off": "f0 9f 98 28",
    "a letter of another character set": "66 fc 72",
    "good text before a bad byte": "61 62 63 ff",
}


def _ill_formed_text() -> Iterator[Case]:
    for name, content in ILL_FORMED.items():
        encoded = bytes.fromhex(content)
        yield _case(_named(name), "ENC-7", head(TEXT, len(encoded)) + encoded)
    yield _case("a surrogate in a key", "ENC-7", head(MAP, 1) + head(TEXT, 3) + b"\xed\xa0\x80" + uint(0))
    yield _case(
        "a character cut in two by the end of its text",
        "ENC-7",
        array([head(TEXT, 1) + b"\xc3", head(TEXT, 1) + b"\xa9"]),
    )


def _nested(levels: str, inner: bytes) -> bytes:
    """`inner` within one array for each "a" and one map for each "m"."""
    for level in reversed(levels):
        inner = array([inner]) if level == "a" else table(("m", inner))
    return inner


def _depth() -> Iterator[Case]:
    yield _passes("arrays 8 deep", "ENC-8", _nested("a" * 8, uint(0)))
    yield _passes("arrays 8 deep and the innermost empty", "ENC-8", _nested("a" * 7, array([])))
    yield _passes("maps 8 deep", "ENC-8", _nested("m" * 8, uint(0)))
    yield _passes("arrays and maps 8 deep", "ENC-8", _nested("amamamam", uint(0)))
    yield _passes("two branches 8 deep", "ENC-8", array([_nested("a" * 7, uint(0)), _nested("m" * 7, uint(0))]))
    yield _passes("ten arrays in a row", "ENC-8", array([array([])] * 10), "Depth is not a count.")
    yield _case("arrays 9 deep", "ENC-8", _nested("a" * 9, uint(0)))
    yield _case("arrays 9 deep and the innermost empty", "ENC-8", _nested("a" * 8, array([])))
    yield _case("maps 9 deep", "ENC-8", _nested("m" * 9, uint(0)))
    yield _case("maps 9 deep and the innermost empty", "ENC-8", _nested("m" * 8, table()))
    yield _case("arrays and maps 9 deep", "ENC-8", _nested("amamamama", uint(0)))
    yield _case("a second branch 9 deep", "ENC-8", array([_nested("a" * 7, uint(0)), _nested("a" * 8, uint(0))]))
    note = "A reader that recurses as deep as it is told runs out of stack."
    yield _case("arrays 4000 deep", "ENC-8", _nested("a" * 4000, uint(0)), note=note)


def _count() -> Iterator[Case]:
    yield _passes("an array that makes 4096 items", "ENC-9", array([uint(0)] * 4095))
    yield _passes("a map that makes 4095 items", "ENC-9", head(MAP, 2047) + _pairs(2047))
    nested = head(MAP, 2047) + _pairs(2047)[:-1]
    yield _passes("a map and its last value that make 4096 items", "ENC-9", nested + array([uint(0)]))
    half = array([uint(0)] * 2047)
    yield _passes("two arrays that make 4096 items", "ENC-9", array([half, array([uint(0)] * 2046)]))
    yield _case("an array that makes 4097 items", "ENC-9", array([uint(0)] * 4096))
    yield _case("a map that makes 4097 items", "ENC-9", head(MAP, 2048) + _pairs(2048), note="Keys count.")
    yield _case("two arrays that make 4097 items", "ENC-9", array([half, half]))
    yield _case("arrays of one that make 4097 items", "ENC-9", array([array([uint(0)])] * 2048))


def _claims() -> Iterator[Case]:
    yield _passes("a byte string that claims all that remains", "ENC-10", bstr(b"ab"))
    yield _passes("an array that claims all that remains", "ENC-10", array([uint(0)] * 3))
    claims = {0: 23, 1: 255, 2: 65_535, 4: 2**32 - 1, 8: LONGEST}
    for major, (what, content) in SIZED.items():
        short = head(MAP, 1) + text("") if major == MAP else head(major, 3) + content(2)
        yield _case(f"{what} that claims one more than there is", "ENC-10", short)
        for width, claim in claims.items():
            yield _case(f"{what} that claims {claim}", "ENC-10", head(major, claim, width) + content(2))
        yield _case(f"{what} that claims 2 to the 63", "ENC-10", head(major, 2**63) + content(2))
    wraps = 2**64 - 9
    note = "In 64 bits the end of the string lies at zero."
    yield _case("a byte string whose end wraps around", "ENC-10", head(BYTES, wraps) + b"ab", note=note)
    note = "In 64 bits twice the count is zero, so that no item seems to be missing."
    yield _case("a map whose items wrap around to none", "ENC-10", head(MAP, 2**63), note=note)
    note = "In 64 bits twice the count is two, so that no item seems to be missing."
    yield _case("a map whose items wrap around to two", "ENC-10", head(MAP, 2**63 + 1) + _pairs(1), note=note)
    note = "In a double float the count is rounded."
    yield _case("an array that claims 2 to the 53 and one", "ENC-10", head(ARRAY, 2**53 + 1) + uint(0), note=note)
    yield _case("an inner array that claims a thousand", "ENC-10", array([uint(0), head(ARRAY, 1000)]))
    yield _case("an inner text that claims the rest and one more", "ENC-10", array([head(TEXT, 3) + b"a", uint(0)]))
