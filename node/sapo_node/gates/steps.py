"""Steps: a right answer that was worked out by an equation which does not hold teaches to reckon wrongly."""

import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

_EQUATION = re.compile(r"(?<![\d/*+=.-])(\d{1,9})([*+-])(\d{1,9})=(\d{1,18})(?![\d*/+-]|\.\d)")
_SIGNS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"*": operator.mul, "+": operator.add, "-": operator.sub}
)


def steps_hold(text: str) -> bool:
    """Whether every equation `a+b=c` of whole numbers in a text holds; true of a text without any."""
    return all(_SIGNS[sign](int(a), int(b)) == int(c) for a, sign, b, c in _EQUATION.findall(text))
