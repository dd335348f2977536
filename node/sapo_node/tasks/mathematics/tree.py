"""The syntax tree of an expression, and the bounds within which a text is read."""

from dataclasses import dataclass
from fractions import Fraction

MAX_TEXT = 4_096
"""Characters of a text, at most."""
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

    def letters(self) -> frozenset[str]:
        """Return the names in the tree whose value is unknown."""
        if self.parts:
            return frozenset().union(*(part.letters() for part in self.parts))
        return frozenset() if self.symbol in CONSTANTS else frozenset({self.symbol})


CONSTANTS = frozenset({"number", "pi", "e", "i", "infty"})


def number(value: int | Fraction) -> Tree:
    return Tree("number", number=Fraction(value))


def negative(tree: Tree) -> Tree:
    if tree.symbol == "number":
        return number(-tree.number)
    return Tree("*", (number(-1), tree))
