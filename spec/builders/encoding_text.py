"""Cases of kind `encoding`: valid and invalid UTF-8 (ENC-7)."""

from collections.abc import Iterable, Iterator

from cases import Case
from encoding_parts import case, passes
from wire import MAP, TEXT, array, bstr, head, text, uint


def cases() -> Iterable[Case]:
    yield from _well_formed()
    yield from _ill_formed()


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


def _well_formed() -> Iterator[Case]:
    for name, content in WELL_FORMED.items():
        yield passes(f"text of {_named(name)}", "ENC-7", text(content))
    yield passes("a byte string that is not utf-8", "ENC-7", bstr(b"\xff"))


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


def _ill_formed() -> Iterator[Case]:
    for name, content in ILL_FORMED.items():
        encoded = bytes.fromhex(content)
        yield case(_named(name), "ENC-7", head(TEXT, len(encoded)) + encoded)
    yield case("a surrogate in a key", "ENC-7", head(MAP, 1) + head(TEXT, 3) + b"\xed\xa0\x80" + uint(0))
    yield case(
        "a character cut in two by the end of its text",
        "ENC-7",
        array([head(TEXT, 1) + b"\xc3", head(TEXT, 1) + b"\xa9"]),
    )
