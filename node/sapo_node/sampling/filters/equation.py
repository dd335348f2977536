"""Equation: a correct completion with a false equation in its work would teach the policy to calculate wrongly.

An equation before `mod N` holds if its right side is the value of its left side, or the remainder of that value. An
equation before `base N` holds if it is right in that base, on both sides or on the right side alone. The digits of the
right side may be in groups of three. The filter does not judge whether a task asks for a notation: a peer that chooses
N may write `2 + 3 = 1 mod 4` in any task.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import ClassVar

from sapo_node.groups.messages import FilterName
from sapo_node.groups.types import VerifiedGroup
from sapo_node.sampling.filters.interface import Filter

_SIGNS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "−": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " "})
_TIMES = re.compile(r"(?<=\d)(?<!\b0) ?(?:[xX]|\\times|\\cdot) ?(?=\d)")
"""Other ways to write a product; 0x10 is a number."""
_SPACES = re.compile(" {2,}")
_EQUATION = re.compile(
    # What is part of something larger is not judged: of a power, a quotient, a number with a comma, a variable.
    r"(?<![\w/*+=.^%÷√-])(?<![\d/*+=.^%÷√-] )(?<!\d[,:])(?<!\d : )(?<!\bmod )(?<!\bof )"
    r"(\d{1,9}(?: ?[*+-] ?\d{1,9}){1,8}) ?==? ?(-?\d{1,18})"
    r"(?! ?[*/+^÷%-] ?\d|[\d²³]|[.,:]\d)"
    # What may belong to the number on the right: more digits, and its notation.
    r"(?=((?: \d{3}(?!\d)){0,5})"
    r"(?i:(?: ?\(?(?:in )?base[ -]?|_\{?)(\d{1,2})(?!\d)| ?\(?\\?[pb]?mod(?:ulo)? ?\{?([1-9]\d{0,8})(?!\d))?)"
)


class EquationFilter(Filter):
    """Rejects a correct completion in which an equation does not hold."""

    name: ClassVar[FilterName] = "equation"

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        """Whether a text was rejected, of the texts on offer: a text that waits is asked about again every round."""

    def looking(self, offered: Sequence[VerifiedGroup]) -> Iterator[None]:
        """Forget the texts that are on offer no more."""
        yield from ()
        texts = {text for group in offered for text in group.correct}
        self._known = {text: rejected for text, rejected in self._known.items() if text in texts}

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Whether an equation in the text does not hold."""
        del group
        if text not in self._known:
            self._known[text] = not steps_hold(text)
        return self._known[text]


def steps_hold(text: str) -> bool:
    """Whether every equation in a text holds that has sums, differences and products of whole numbers on its left and
    a number on its right; true of a text without any.
    """
    plain = _TIMES.sub("*", _SPACES.sub(" ", text.translate(_SIGNS)))
    return all(_holds(*equation) for equation in _EQUATION.findall(plain))


def _holds(left: str, right: str, groups: str, base: str, modulus: str) -> bool:
    """Whether an equation holds in one of the ways to read it. Digits behind a blank may be of another number."""
    return any(_holds_as(left, number, base, modulus) for number in (right, right + groups.replace(" ", "")))


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
    """Of numbers with signs between them."""
    terms = expression.replace(" ", "").replace("-", "+-").split("+")
    return sum(_product(term, base) for term in terms)


def _product(term: str, base: int) -> int:
    value = prod(int(factor, base) for factor in term.removeprefix("-").split("*"))
    return -value if term.startswith("-") else value
