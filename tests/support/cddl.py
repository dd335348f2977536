"""The part of CDDL (RFC 8610) that spec/sapo.cddl uses, judged strictly.

Types are closures over items, and an item is what its bytes say: major type and content, nothing converted.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

Item = tuple[int, Any]
Matcher = Callable[[Item], bool]
Entry = tuple[int, float, Matcher | None, Matcher]

UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(8)
FALSE, TRUE = (SIMPLE, 20), (SIMPLE, 21)
BREAK = (SIMPLE, None)
TOKEN = re.compile(r'\s+|;[^\n]*|("[^"]*"|#6\.\d+|\d*\*\d*|-?\d+|[a-z_]\w*|=>|\.\.|\.size|[\[\]{}()=/,:?])')
PRELUDE: dict[str, Matcher] = {
    "uint": lambda item: item[0] == UINT,
    "bstr": lambda item: item[0] == BYTES,
    "tstr": lambda item: item[0] == TEXT,
    "bool": lambda item: item in (FALSE, TRUE),
}


class Grammar:
    def __init__(self, text: str) -> None:
        self._tokens = [token for token in TOKEN.findall(text) if token]
        assert "".join(self._tokens) == re.sub(r";[^\n]*|\s", "", text), "a token this reader does not know"
        self._rules = dict(PRELUDE)
        while self._tokens:
            name = self._next()
            assert self._takes("=")
            self._rules[name] = self._type()

    def fits(self, rule: str, data: bytes) -> bool:
        """Whether `data` is one well-formed item and of the type that `rule` names."""
        try:
            item, end = decoded(data, 0)
        except (IndexError, ValueError):
            return False
        return end == len(data) and self._rules[rule](item)

    def _next(self) -> str:
        return self._tokens.pop(0)

    def _takes(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        self._next()
        return True

    def _type(self) -> Matcher:
        choices = [self._sized()]
        while self._takes("/"):
            choices.append(self._sized())
        return lambda item: any(choice(item) for choice in choices)

    def _sized(self) -> Matcher:
        content = self._single()
        if not self._takes(".size"):
            return content
        size = self._single()
        return lambda item: content(item) and size((UINT, len(_octets(item[1]))))

    def _single(self) -> Matcher:
        token = self._next()
        if token == "[":
            return _array(list(self._entries("]")))
        if token == "{":
            return _map(list(self._entries("}")))
        if token == "(":
            return self._closed()
        if token.startswith("#6."):
            assert self._takes("(")
            tagged, number = self._closed(), int(token[3:])
            return lambda item: item[0] == TAG and item[1][0] == number and tagged(item[1][1])
        return self._literal(token) if token[0] in '"-0123456789' else self._named(token)

    def _literal(self, token: str) -> Matcher:
        if token[0] == '"':
            return lambda item: item == (TEXT, token[1:-1])
        low = int(token)
        high = int(self._next()) if self._takes("..") else low
        return lambda item: item[0] in {UINT, NEGATIVE} and low <= item[1] <= high

    def _named(self, name: str) -> Matcher:
        def fits(item: Item) -> bool:
            return self._rules[name](item)  # looked up late: it may be defined further down

        return fits

    def _closed(self) -> Matcher:
        inner = self._type()
        assert self._takes(")")
        return inner

    def _entries(self, close: str) -> Iterator[Entry]:
        while not self._takes(close):
            low, high = 1, 1.0
            if self._takes("?"):
                low = 0
            elif "*" in self._tokens[0]:
                least, _, most = self._next().partition("*")
                low, high = int(least or 0), float(most or "inf")
            if self._tokens[1] == ":":
                del self._tokens[:2]
            value = self._type()
            key = None
            if self._takes("=>"):
                key, value = value, self._type()
            self._takes(",")
            yield low, high, key, value


def _array(entries: list[Entry]) -> Matcher:
    def fits(item: Item) -> bool:
        rest = list(item[1]) if item[0] == ARRAY else None
        for low, high, _, value in entries if rest is not None else ():
            taken = 0
            while taken < high and taken < len(rest) and value(rest[taken]):
                taken += 1
            if taken < low:
                return False
            del rest[:taken]
        return rest == []

    return fits


def _map(entries: list[Entry]) -> Matcher:
    def fits(item: Item) -> bool:
        rest = list(item[1]) if item[0] == MAP else None
        for low, high, key, value in entries if rest is not None else ():
            taken = [pair for pair in rest if key(pair[0]) and value(pair[1])]
            if not low <= len(taken) <= high:
                return False
            rest = [pair for pair in rest if pair not in taken]
        return rest == []

    return fits


def _octets(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def decoded(data: bytes, position: int) -> tuple[Item, int]:
    """The item at `position` and where it ends. Raises IndexError or ValueError where it is not well-formed."""
    major, number, position = _head(data, position)
    if major in {UINT, NEGATIVE, SIMPLE}:
        return (major, -1 - number if major == NEGATIVE else number), position
    if major == TAG:
        inner, position = decoded(data, position)
        return (TAG, (number, inner)), position
    if major in {BYTES, TEXT} and number is not None:
        content = data[position : position + number]
        if len(content) < number:
            raise ValueError("cut short")
        return (major, content if major == BYTES else content.decode()), position + number
    items, position = _items(data, position, number if number is None or major == ARRAY else 2 * number)
    return (major, _joined(major, items)), position


def _head(data: bytes, position: int) -> tuple[int, Any, int]:
    """Major type, argument (None for an indefinite length and for a break) and where the head ends."""
    major, information = data[position] >> 5, data[position] & 31
    position += 1
    if information < 24:
        return major, information, position
    if information == 31 and major not in {UINT, NEGATIVE, TAG}:
        return major, None, position
    end = position + (1 << information - 24)
    if information > 27 or end > len(data):
        raise ValueError("a reserved or cut head")
    number = int.from_bytes(data[position:end], "big")
    if major == SIMPLE and information == 24 and number < 32:
        raise ValueError("a simple value that fits in the head")
    return major, number if major != SIMPLE or information == 24 else ("float", number), end


def _items(data: bytes, position: int, count: int | None) -> tuple[list[Item], int]:
    items: list[Item] = []
    while count is None or len(items) < count:
        item, position = decoded(data, position)
        if item == BREAK and count is None:
            break
        if item == BREAK:
            raise ValueError("a break out of place")
        items.append(item)
    return items, position


def _joined(major: int, items: list[Item]) -> Any:
    """The content of a map, an array, or a string in parts."""
    if major == MAP:
        return list(zip(items[::2], items[1::2], strict=True))
    if major == ARRAY:
        return items
    if any(part != major for part, _ in items):
        raise ValueError("a string with a part of another type")
    return (b"" if major == BYTES else "").join(content for _, content in items)
