"""The syntax tree of an expression, and the bounds within which a text is read."""

from dataclasses import dataclass
from fractions import Fraction

MAX_TEXT = 4_096
"""Characters of a text, at most."""
MAX_TOKENS = 1_024
"""Tokens of a text, at most."""
MAX_DEPTH = 24
"""Brackets, braces, roots and exponents inside one another, at most."""
MAX_DIGITS = 100
"""Digits of one number, at most."""
MAX_SIGNS = 3
"""`\\pm` and `\\mp` in a text, at most: each doubles the values."""


class UnreadableError(ValueError):
    """The text is not mathematics that this package reads, or it exceeds a bound."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A number, a name, or an operation with its operands.

    `symbol` is "number", "+", "*", "^" (base, exponent), "/" (one operand: its inverse), the name of a function, or,
    where there are no operands, a name: a letter with its index, `pi`, `e`, `i` or `infty`.
    """

    symbol: str
    parts: tuple["Tree", ...] = ()
    number: Fraction = Fraction(0)

    def names(self) -> frozenset[str]:
        """Return the letters and constants in the tree."""
        if self.parts:
            return frozenset().union(*(part.names() for part in self.parts))
        return frozenset() if self.symbol == "number" else frozenset({self.symbol})


CONSTANTS = frozenset({"pi", "e", "i", "infty"})
"""Names that are no letters: each has one value."""


def number(value: int | Fraction) -> Tree:
    return Tree("number", number=Fraction(value))


def negative(tree: Tree) -> Tree:
    if tree.symbol == "number":
        return number(-tree.number)
    return Tree("*", (number(-1), tree))
