"""Equation: a correct completion with a false equation in its work would teach the policy to calculate wrongly.

An equation before `mod N` holds if its right side is the value of its left side, or the remainder of that value. An
equation before `base N` holds if it is right in that base, on both sides or on the right side alone. The digits of the
right side may be in groups of three. The filter does not judge whether a task asks for a notation: a peer that chooses
N may write `2 + 3 = 1 mod 4` in any task.

An equation is judged wherever it begins: behind the end of a sentence, a bullet, another equals sign. It is not judged
if it is part of something larger (`1/2 + 2 = 5`), if a side of it is an expression that is not read here
(`2 + 2 = 5.0`, `(2 + 2) = 5`, `2 + 2 = 5 + 0`), or if it is in words.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import ClassVar

from sapo_node.groups.messages import FilterName
from sapo_node.groups.record import VerifiedGroup
from sapo_node.sampling.filters.interface import Filter

_SIGNS = str.maketrans("×·⋅\u2217\u2212\uff0b\uff0d\uff1d\uff0a\ufe62\ufe63\ufe66\u207c\u208c", "****-+-=*+-===")
_UNSEEN = frozenset({"Cf", "Mn"})
"""Unicode's categories of characters without a width."""
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n[ \n]*")
_TIMES = re.compile(r"(?<=\d)(?<!\b0) ?(?:[xX✕✖]|\\times|\\cdot) ?(?=\d)")
"""Other ways to write a product; 0x10 is a number."""
_MINUS = re.compile(r"(?<=\d) ?\u2013 ?(?=\d)")
"""A dash between numbers. Elsewhere it is punctuation."""
_EQUATION = re.compile(
    r"(?<!\w)(\d{1,9}(?: ?[*+-][ \n]?\d{1,9}){1,8})[ \n]?==?[ \n]?(-?\d{1,18})"
    r"(?! ?[*/+^÷%-] ?\d|[\d²³]|[.,:]\d)"
    # What may belong to the number on the right: more digits, and its notation.
    r"(?=((?: \d{3}(?!\d)){0,5})"
    r"(?i:(?: ?\(?(?:in )?base[ -]?|_\{?)(\d{1,2})(?!\d)| ?\(?\\?[pb]?mod(?:ulo)? ?\{?([1-9]\d{0,8})(?!\d))?)"
)
_LARGER = re.compile(
    # The text before an equation that is part of something larger: a term and an operator (a sign without a term before
    # it is a bullet), a root, a number with a point, a comma or a colon, a remainder, a share or a square of something.
    r"(?:[\w)\]}][$|!'%°]? ?[/*+^÷%-][/*+^÷% -]*|√ ?|(?:^|[\s\d(\[{=+*/^<>~$€£-])\.|\d[,:]|\d : |\bmod "
    r"|(?:[\d%)]|\b(?:half|third|quarter|fourth|fifth|tenth|square|cube|root|double)s?) of )$",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d $")
_THREE_DIGITS = re.compile(r"\d{3}(?!\d)")
_BEFORE = 16
"""Characters before an equation that say whether it is part of something larger."""


class EquationFilter(Filter):
    """Rejects a correct completion in which an equation does not hold."""

    name: ClassVar[FilterName] = "equation"

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        """Cache by text, for the texts on offer: a text that waits is judged again every round."""

    def looking(self, offered: Sequence[VerifiedGroup]) -> Iterator[None]:
        """Forget the texts that are no longer on offer."""
        yield from ()
        texts = {text for group in offered for text in group.correct}
        self._known = {text: rejected for text, rejected in self._known.items() if text in texts}

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Return whether an equation in the text does not hold."""
        del group
        if text not in self._known:
            self._known[text] = not steps_hold(text)
        return self._known[text]


def steps_hold(text: str) -> bool:
    """Return whether every equation in a text holds that has sums, differences and products of whole numbers on its
    left and a number on its right; true of a text without any.
    """
    seen = text if text.isascii() else "".join(each for each in text if unicodedata.category(each) not in _UNSEEN)
    plain = _LINES.sub("\n", _SPACES.sub(" ", seen.translate(_SIGNS)))
    plain = _MINUS.sub("-", _TIMES.sub("*", plain))
    return all(_holds(plain[max(0, each.start() - _BEFORE) : each.start()], each) for each in _EQUATION.finditer(plain))


def _holds(before: str, equation: re.Match[str]) -> bool:
    """Return whether an equation holds in one of its readings, or is part of something larger. Digits behind a blank
    may be of another number, and a sign before it may be a bullet.
    """
    left, right, groups, base, modulus = (part or "" for part in equation.groups())
    if _LARGER.search(before) or (_DIGIT.search(before) and _THREE_DIGITS.match(left)):
        return True
    lefts = (left, f"-{left}") if before.rstrip(" ").endswith("-") else (left,)
    rights = (right, right + groups.replace(" ", ""))
    return any(_holds_as(each, number, base, modulus) for each in lefts for number in rights)


def _holds_as(left: str, right: str, base: str, modulus: str) -> bool:
    value = _value(left)
    if modulus:
        return int(right) in (value, value % int(modulus))
    return int(right) == value or (base != "" and _holds_in_base(left, right, int(base)))


def _holds_in_base(left: str, right: str, base: int) -> bool:
    with suppress(ValueError):  # a digit that the base lacks, or no base
        number = int(right, base)
        return number == _value(left) or number == _value(left, base)
    return False


def _value(expression: str, base: int = 10) -> int:
    """Return the value of numbers with signs between them."""
    terms = expression.replace(" ", "").replace("\n", "").replace("-", "+-").split("+")
    return sum(_product(term, base) for term in terms if term)


def _product(term: str, base: int) -> int:
    value = prod(int(factor, base) for factor in term.removeprefix("-").split("*"))
    return -value if term.startswith("-") else value
