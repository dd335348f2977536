"""Cases of kind `encoding`: depth, number of items, and lengths beyond the end (ENC-8 to ENC-10)."""

from collections.abc import Iterable, Iterator

from cases import Case
from encoding_parts import LONGEST, SIZED, case, pairs, passes
from wire import ARRAY, BYTES, MAP, TEXT, array, bstr, head, table, text, uint


def cases() -> Iterable[Case]:
    yield from _depth()
    yield from _count()
    yield from _claims()


def _nested(levels: str, inner: bytes) -> bytes:
    """`inner` nested in an array for each "a" and a map for each "m"."""
    for level in reversed(levels):
        inner = array([inner]) if level == "a" else table(("m", inner))
    return inner


def _depth() -> Iterator[Case]:
    yield passes("arrays 8 deep", "ENC-8", _nested("a" * 8, uint(0)))
    yield passes("arrays 8 deep and the innermost empty", "ENC-8", _nested("a" * 7, array([])))
    yield passes("maps 8 deep", "ENC-8", _nested("m" * 8, uint(0)))
    yield passes("arrays and maps 8 deep", "ENC-8", _nested("amamamam", uint(0)))
    yield passes("two branches 8 deep", "ENC-8", array([_nested("a" * 7, uint(0)), _nested("m" * 7, uint(0))]))
    yield passes("ten arrays in a row", "ENC-8", array([array([])] * 10), "Depth is not a count.")
    yield case("arrays 9 deep", "ENC-8", _nested("a" * 9, uint(0)))
    yield case("arrays 9 deep and the innermost empty", "ENC-8", _nested("a" * 8, array([])))
    yield case("maps 9 deep", "ENC-8", _nested("m" * 9, uint(0)))
    yield case("maps 9 deep and the innermost empty", "ENC-8", _nested("m" * 8, table()))
    yield case("arrays and maps 9 deep", "ENC-8", _nested("amamamama", uint(0)))
    yield case("a second branch 9 deep", "ENC-8", array([_nested("a" * 7, uint(0)), _nested("a" * 8, uint(0))]))
    note = "A reader that recurses as deep as it is told runs out of stack."
    yield case("arrays 4000 deep", "ENC-8", _nested("a" * 4000, uint(0)), note=note)


def _count() -> Iterator[Case]:
    yield passes("an array that makes 4096 items", "ENC-9", array([uint(0)] * 4095))
    yield passes("a map that makes 4095 items", "ENC-9", head(MAP, 2047) + pairs(2047))
    nested = head(MAP, 2047) + pairs(2047)[:-1]
    yield passes("a map and its last value that make 4096 items", "ENC-9", nested + array([uint(0)]))
    half = array([uint(0)] * 2047)
    yield passes("two arrays that make 4096 items", "ENC-9", array([half, array([uint(0)] * 2046)]))
    yield case("an array that makes 4097 items", "ENC-9", array([uint(0)] * 4096))
    yield case("a map that makes 4097 items", "ENC-9", head(MAP, 2048) + pairs(2048), note="Keys count.")
    yield case("two arrays that make 4097 items", "ENC-9", array([half, half]))
    yield case("arrays of one that make 4097 items", "ENC-9", array([array([uint(0)])] * 2048))


def _claims() -> Iterator[Case]:
    yield passes("a byte string that claims all that remains", "ENC-10", bstr(b"ab"))
    yield passes("an array that claims all that remains", "ENC-10", array([uint(0)] * 3))
    claims = {0: 23, 1: 255, 2: 65_535, 4: 2**32 - 1, 8: LONGEST}
    for major, (what, content) in SIZED.items():
        short = head(MAP, 1) + text("") if major == MAP else head(major, 3) + content(2)
        yield case(f"{what} that claims one more than there is", "ENC-10", short)
        for width, claim in claims.items():
            yield case(f"{what} that claims {claim}", "ENC-10", head(major, claim, width) + content(2))
        yield case(f"{what} that claims 2 to the 63", "ENC-10", head(major, 2**63) + content(2))
    wraps = 2**64 - 9
    note = "In 64 bits the end of the string lies at zero."
    yield case("a byte string whose end wraps around", "ENC-10", head(BYTES, wraps) + b"ab", note=note)
    note = "In 64 bits twice the count is zero, so that no item seems to be missing."
    yield case("a map whose items wrap around to none", "ENC-10", head(MAP, 2**63), note=note)
    note = "In 64 bits twice the count is two, so that no item seems to be missing."
    yield case("a map whose items wrap around to two", "ENC-10", head(MAP, 2**63 + 1) + pairs(1), note=note)
    note = "In a double float the count is rounded."
    yield case("an array that claims 2 to the 53 and one", "ENC-10", head(ARRAY, 2**53 + 1) + uint(0), note=note)
    yield case("an inner array that claims a thousand", "ENC-10", array([uint(0), head(ARRAY, 1000)]))
    yield case("an inner text that claims the rest and one more", "ENC-10", array([head(TEXT, 3) + b"a", uint(0)]))
