"""Reads the notations that several scorers share: tables, sequences of moves or pairs, and numbers."""

import re
from fractions import Fraction


def balanced(text: str) -> bool:
    """Return whether the text has as many closing as opening brackets of each kind."""
    return all(text.count(opening) == text.count(closing) for opening, closing in ("()", "[]", "{}"))


_BRACKETED = re.compile(r"\[([^\[\]]*)\]")
_OUTSIDE = "[](){}, ;\t\r\n"
_CELL = re.compile(r"[^ \t\r\n,;|\"']+")
_RULED = re.compile(r"[-+=| \t\r]+")


def table(text: str) -> list[list[str]]:
    """Return the cells of a table by row; empty if the text is no table.

    A row stands on a line or in brackets. Blanks, commas, semicolons, bars or quotes separate cells. A line of dashes,
    plus and equals signs with two signs or more separates rows.
    """
    if not balanced(text) or text.count('"') % 2 or text.count("'") % 2:
        return []
    if "[" in text:
        if _BRACKETED.sub("", text).strip(_OUTSIDE):
            return []
        lines = _BRACKETED.findall(text)
    else:
        lines = [line for line in text.split("\n") if not _RULED.fullmatch(line)]
    return [cells for line in lines if (cells := _CELL.findall(line))]


_BETWEEN = re.compile(r"[ \t\r\n,;.\"'`\[\]{}()→>*-]+|[0-9]{1,4}[.):]")


def sequence(element: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Return the matches of `element` that make up the text; empty if the text holds anything else.

    Blanks, punctuation, arrows and the numbers of a list may stand between two elements.
    """
    found: list[re.Match[str]] = []
    position = 0
    if not balanced(text):
        return []
    while position < len(text):
        if match := element.match(text, position):
            found.append(match)
        else:
            match = _BETWEEN.match(text, position)
        if match is None:
            return []
        position = match.end()
    return found


DECIMAL = r"[+-]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})"
"""The pattern of a whole number or a decimal."""

_DEGREES = re.compile(r"(?: ?°| ?degrees?| ?\^ ?\{? ?(?:\\circ|°) ?\}?)$", re.ASCII | re.IGNORECASE)

_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
_DIGITS = "[0-9]{1,30}"
_RATIONAL = re.compile(
    rf"(?P<sign>[+-]?) ?(?:(?P<whole>{_DIGITS})?\.(?P<decimals>{_DIGITS})"
    rf"|(?P<numerator>{_DIGITS})(?: ?/ ?(?P<denominator>{_DIGITS})|\.)?"
    rf"|\\[dt]?frac ?\{{ ?(?P<above>{_DIGITS}) ?\}} ?\{{ ?(?P<below>{_DIGITS}) ?\}})"
)


def with_ascii_minus(text: str) -> str:
    """Return the text with the minus sign and the en dash as hyphens."""
    return text.translate(_MINUS)


def without_degrees(text: str) -> str:
    """Return the text without a degree sign or the word `degrees` at its end."""
    return _DEGREES.sub("", text)


def rational(text: str) -> Fraction | None:
    """Return the value of a whole number, a decimal or a fraction (a/b or LaTeX); None if the text is none of these."""
    match = _RATIONAL.fullmatch(with_ascii_minus(text).strip(" "))
    if match is None:
        return None
    if match["decimals"]:
        value = Fraction(int((match["whole"] or "") + match["decimals"]), 10 ** len(match["decimals"]))
    else:
        below = int(match["denominator"] or match["below"] or 1)
        if not below:
            return None
        value = Fraction(int(match["numerator"] or match["above"]), below)
    return -value if match["sign"] == "-" else value
