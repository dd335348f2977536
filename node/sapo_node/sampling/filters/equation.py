"""Equation: a correct completion with a false equation in its work would teach the policy to calculate wrongly."""

import re
from functools import lru_cache
from math import prod
from typing import ClassVar

from sapo_node.groups.messages import FilterName
from sapo_node.groups.types import VerifiedGroup
from sapo_node.sampling.filters.interface import Filter

_SIGNS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "−": "-"})
_TIMES = re.compile(r"(?<=\d)(?<!\b0) ?(?:[xX]|\\times|\\cdot) ?(?=\d)")
"""Other ways to write a product; 0x10 is a number."""
_SPACES = re.compile(" {2,}")
_EQUATION = re.compile(
    # What is part of something larger is not judged: of a power, a quotient, a number with a comma, a variable.
    r"(?<![\w/*+=.^%÷√-])(?<![\d/*+=.^%÷√-] )(?<!\d[,:])(?<!\d : )(?<!\bmod )(?<!\bof )"
    r"(\d{1,9}(?: ?[*+-] ?\d{1,9}){1,8}) ?==? ?(-?\d{1,18})"
    r"(?! ?[*/+^÷%-] ?\d|[\d²³]|[.,:]\d)"
)


class EquationFilter(Filter):
    """Rejects a correct completion in which an equation does not hold."""

    name: ClassVar[FilterName] = "equation"

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Whether an equation in the text does not hold."""
        del group
        return not steps_hold(text)


@lru_cache(maxsize=8192)  # a text that waits is looked at again every round
def steps_hold(text: str) -> bool:
    """Whether every equation in a text holds that has sums, differences and products of whole numbers on its left and
    a number on its right; true of a text without any.
    """
    plain = _TIMES.sub("*", _SPACES.sub(" ", text.translate(_SIGNS)))
    return all(_value(left) == int(right) for left, right in _EQUATION.findall(plain))


def _value(expression: str) -> int:
    """Of numbers with signs between them."""
    return sum(map(_product, expression.replace(" ", "").replace("-", "+-").split("+")))


def _product(term: str) -> int:
    value = prod(map(int, term.removeprefix("-").split("*")))
    return -value if term.startswith("-") else value
