r"""Splits a text, LaTeX or plain, into tokens.

Layout is dropped: `$`, `\(`, `\left`, `\,`, `\displaystyle` and the like. Signs that people type (−, ×, π, √, ≤, ²)
become LaTeX. All other characters outside ASCII make a text unreadable, digits of other scripts among them.
"""

import re
from dataclasses import dataclass

from sapo_node.tasks.mathematics.tree import MAX_DIGITS, MAX_TEXT, MAX_TOKENS, UnreadableError
from sapo_node.tasks.mathematics.vocabulary import FUNCTIONS, GREEK, ORNAMENTS, SIGNS, TYPED, UNITS, WORDS


@dataclass(frozen=True, slots=True)
class Token:
    r"""A piece of a text.

    `kind` is "number" (text: digits, perhaps with a point), "letter" (with its index), "name" (a function), "text" (the
    words of `\text{}`, or a unit), "begin", "end" (the name of the environment), "row" (`\\`), "real" (`\mathbb{R}`),
    or a kind of the vocabulary's signs and words.
    """

    kind: str
    text: str = ""


_LAYOUT = re.compile(
    r"(\\\\)|\\(?:left|right)(?![a-z])\.?|\\[bB]igg?[lr]?(?![a-z])|\\(?:displaystyle(?![a-z])|q?quad)"
    r"|\\[()\[\]$;:> ]|\$|~"
)
_ESCAPED_TWICE = re.compile(r"\\\\(?=[A-Za-z]{2})")
"""The beginning of a command in a text that was escaped twice. In a matrix it ends a row."""
_GROUPS = re.compile(r"(?<![0-9.])([0-9]{1,3})((?:(?:\\!,|,\\!|\{,\}|\\,|\\ ) ?[0-9]{3}){1,16})(?![0-9])")
_BLANK_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(?: [0-9]{3}){1,16}(?:\.[0-9]+)?")
_COMMA_GROUPS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3}){1,16}(?:\.[0-9]+)?(?![0-9]|,[0-9])")
_WORDS_BEHIND = re.compile(r"(?<=[0-9}%]) ([A-Za-z]{3,20}(?:[ /-][A-Za-z]{2,20}){0,5})$")
_TOKEN = re.compile(
    r"(?P<blank> +|\\[,!])"
    r"|\\(?:text(?:bf|it|rm|normal)?|mbox|math(?:rm|bf|it)|operatorname) ?\{(?P<text>[^{}]*)\}"
    r"|(?P<real>\\mathbb ?(?:\{R\}|R))"
    r"|\\begin ?\{(?P<begin>[a-zA-Z]{1,12})\}(?:\{[clr|]{1,20}\})?"
    r"|\\end ?\{(?P<end>[a-zA-Z]{1,12})\}"
    r"|(?P<scientific>[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]{1,3}(?![0-9.]))"
    r"|(?P<number>[0-9]*\.[0-9]*\\overline ?\{[0-9]{1,20}\}|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<row>\\\\)"
    r"|(?P<sign>\*\*|<=|>=|!=|==|\+-|\\[{}%]|[-+*/^_=<>(){}\[\]|,;:!&%'])"
    r"|\\(?P<command>[A-Za-z]+)"
)
_OPEN, _CLOSE = frozenset({"(", "[", "\\{"}), frozenset({")", "]", "\\}"})


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text. Raises UnreadableError for characters that belong to no token."""
    text = _plain(text)
    found: list[Token] = []
    place = depth = 0
    while place < len(text):
        # Inside brackets a comma separates: (1,234) is a pair.
        match = _COMMA_GROUPS.match(text, place) if not depth and text[place].isdigit() else None
        if match is not None:
            found.append(_number(match[0].replace(",", "")))
        else:
            match = _TOKEN.match(text, place)
            if match is None:
                raise UnreadableError("a character that is no token")
            given = _read(str(match.lastgroup), match[str(match.lastgroup)])
            depth += sum((token.kind in _OPEN) - (token.kind in _CLOSE) for token in given)
            found += given
        if len(found) > MAX_TOKENS:
            raise UnreadableError("too many tokens")
        place = match.end()
    return _joined(found)


def _plain(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise UnreadableError("the text is too long")
    text = text.translate(TYPED)
    if not text.isascii():
        raise UnreadableError("a character outside ASCII")
    if "\\begin" not in text:
        text = _ESCAPED_TWICE.sub(r"\\", text)
    text = _GROUPS.sub(lambda found: found[1] + re.sub("[^0-9]", "", found[2]), text)
    text = _LAYOUT.sub(lambda found: found[1] or " ", text).strip(" ").removesuffix(".").rstrip(" ")
    if _BLANK_GROUPS.fullmatch(text):
        return text.replace(" ", "")
    return _WORDS_BEHIND.sub(_as_text, text)


def _as_text(found: re.Match[str]) -> str:
    return found[0] if set(found[1].lower().split()) & (FUNCTIONS | WORDS.keys()) else rf"\text{{{found[1]}}}"


def _read(kind: str, text: str) -> list[Token]:
    match kind:
        case "blank":
            return []
        case "scientific":
            return _scientific(*text.lower().split("e"))
        case "sign" | "command":
            return _sign(text if kind == "sign" else "\\" + text)
    readers = {"number": _numbers, "text": _text, "word": _word}
    return readers[kind](text) if kind in readers else [Token(kind, text)]


def _numbers(text: str) -> list[Token]:
    return [_number(text)]


def _number(text: str) -> Token:
    if len(text) > MAX_DIGITS:
        raise UnreadableError("a number with too many digits")
    return Token("number", text)


def _scientific(digits: str, exponent: str) -> list[Token]:
    sign = [Token("-")] if exponent[0] == "-" else []
    power = [Token("{"), *sign, _number(exponent.lstrip("+-")), Token("}")]
    return [_number(digits), Token("*"), _number("10"), Token("^"), *power]


def _text(words: str) -> list[Token]:
    words = words.strip(" ")
    bare = words.strip(" ,;.%\\").lower()
    if words in {"%", "\\%"}:
        return [Token("%")]
    if bare in WORDS:
        return [Token(WORDS[bare])]
    if words in FUNCTIONS:
        return [Token("name", words)]
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", words):
        return [_number(words)]
    return [Token("text", words)] if words else []


def _word(text: str) -> list[Token]:
    if text.lower() in WORDS:
        return [Token(WORDS[text.lower()])]
    if text in FUNCTIONS:
        return [Token("name", text)]
    if text.lower() in UNITS and len(text) > 1:
        return [Token("text", text)]
    for name in ("sqrt", "pi"):
        if text.endswith(name) and len(text) <= len(name) + 2:
            return [*_word(text.removesuffix(name)), *_word(name)]
    return [Token("letter", letter) for letter in text]


def _sign(text: str) -> list[Token]:
    if text in SIGNS:
        return [Token(SIGNS[text])]
    name = text.removeprefix("\\")
    if name in FUNCTIONS:
        return [Token("name", name)]
    if name in GREEK:
        return [Token("letter", name)]
    if name in ORNAMENTS:
        return []
    raise UnreadableError("an unknown command")


def _joined(found: list[Token]) -> list[Token]:
    r"""Return the tokens with an index (`_1`, `_{10}`) in its letter, and `^\circ` as one token."""
    joined: list[Token] = []
    place = 0
    while place < len(found):
        token = found[place]
        place += 1
        if token.kind == "_" and joined and joined[-1].kind == "letter" and place < len(found):
            end = place + 1
            if found[place].kind == "{":
                end = next((n + 1 for n in range(place, min(place + 8, len(found))) if found[n].kind == "}"), end)
            index = "".join(each.text or each.kind for each in found[place:end])
            token = Token("letter", joined.pop().text + "_" + index.strip("{}"))
            place = end
        elif token.kind == "circ":
            braces = [each.kind for each in joined[-2:]] == ["^", "{"]
            del joined[-2 if braces else -1 :]
            place += braces
            token = Token("degree")
        joined.append(token)
    return joined
