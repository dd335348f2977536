"""Gives an expression a value in a finite field, so that two ways to write a number have one value.

The field has p = 2q + 1 elements, p and q prime, and q = 4 * 114 * (product of the primes below 100) - 1. So:

- Every prime below 100 is a square, -1 is none. Half of the elements are squares, and each square has one root that is
  a square itself. Taking this root makes sqrt(12) = 2 * sqrt(3) = 6 / sqrt(3) hold, and x^(u/v) for every fraction u/v.
- Exponents of squares count modulo the prime q. An exponent with letters is a value in the field of q elements:
  2^(n+1) = 2 * 2^n holds.
- The complex numbers are the pairs (real, imaginary) with i * i = -1.

Letters, pi, e and functions of what is no rational number are elements drawn by SHA-256. So an identity holds here if
it follows from the rules of fields and powers. Sines follow sin^2 + cos^2 = 1; other identities of functions do not
hold. Letters stand for positive numbers: sqrt(x^2) = x.

A number is also kept as an exact fraction while it is short. Two exact values are compared as fractions. Where one of
two numbers is no known fraction, they agree by chance with a probability of about 2^-130. A writer who solves for a
number that agrees (`x + p` for x, in two numbers whose sum is p) succeeds. This is accepted: such an answer needs the
reference, and earns no more than it.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from sapo_node.tasks.mathematics.tree import CONSTANTS, Tree, UnreadableError

_PRIMES = [n for n in range(2, 1_000) if all(n % d for d in range(2, math.isqrt(n) + 1))]
EXPONENTS = 4 * 114 * math.prod(prime for prime in _PRIMES if prime < 100) - 1
"""q, a prime."""
NUMBERS = 2 * EXPONENTS + 1
"""p, a prime."""

MAX_COSTLY = 256
"""Powers, inverses, roots and functions of a text, at most."""
MAX_BITS = 1_024
"""Bits of numerator or denominator of an exact value, at most."""
MAX_EXPONENT = 1_000_000
"""Numerator of an exponent, at most."""
MAX_ARGUMENT = 170
"""Argument of a factorial or binomial, at most."""


@dataclass(frozen=True, slots=True)
class Value:
    """An element real + i * imaginary, and the fraction that it stands for; None if it stands for no known fraction."""

    real: int
    imaginary: int = 0
    exact: Fraction | None = None


@dataclass(slots=True)
class Budget:
    """Costly operations that are left."""

    left: int = MAX_COSTLY

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise UnreadableError("too many operations")


class Field:
    """Evaluates trees modulo a prime. Each `point` gives letters other values; constants have the same at every point.

    Every method raises UnreadableError for what has no value (division by 0, 0^0) and beyond the budget.
    """

    def __init__(self, budget: Budget, point: int = 0, modulus: int = NUMBERS) -> None:
        self._budget, self._point, self._p = budget, point, modulus
        self._order = (modulus - 1) // 2

    def value(self, tree: Tree) -> Value:
        """Return the value of a tree."""
        if tree.symbol == "number":
            return self._rational(tree.number)
        if not tree.parts:
            return self._name(tree)
        if tree.symbol == "^":
            return self._power(*tree.parts)
        values = [self.value(part) for part in tree.parts]
        operation = {"+": self._add, "*": self._multiply}.get(tree.symbol)
        return reduce(operation, values) if operation else self._function(tree.symbol, values)

    def _rational(self, exact: Fraction) -> Value:
        if exact and exact.numerator % self._p == 0:
            raise UnreadableError("a number that is 0 in the field alone")
        if exact.denominator == 1:
            return Value(exact.numerator % self._p, exact=exact)
        self._budget.spend()
        if exact.denominator % self._p == 0:
            raise UnreadableError("a denominator is 0 in the field")
        return Value(exact.numerator * pow(exact.denominator, -1, self._p) % self._p, exact=_short(exact))

    def _name(self, tree: Tree) -> Value:
        if tree.symbol == "i":
            return Value(0, 1)
        return Value(self._square("name", tree.symbol, self._point if tree.symbol not in CONSTANTS else 0))

    def _square(self, *what: object) -> int:
        """Return an element that is a square, drawn by `what`."""
        self._budget.spend()
        drawn = int.from_bytes(hashlib.sha256(repr(what).encode()).digest(), "big") % self._p
        return drawn * drawn % self._p

    def _opaque(self, name: str, *values: Value) -> Value:
        return Value(self._square(name, *((each.real, each.imaginary) for each in values)))

    def _add(self, a: Value, b: Value) -> Value:
        exact = a.exact + b.exact if a.exact is not None and b.exact is not None else None
        return Value((a.real + b.real) % self._p, (a.imaginary + b.imaginary) % self._p, _short(exact))

    def _multiply(self, a: Value, b: Value) -> Value:
        exact = a.exact * b.exact if a.exact is not None and b.exact is not None else None
        real = a.real * b.real - a.imaginary * b.imaginary
        imaginary = a.real * b.imaginary + a.imaginary * b.real
        return Value(real % self._p, imaginary % self._p, _short(exact))

    def _inverse(self, a: Value) -> Value:
        self._budget.spend()
        norm = (a.real * a.real + a.imaginary * a.imaginary) % self._p
        if not norm:
            raise UnreadableError("division by 0")
        inverse = pow(norm, -1, self._p)
        return Value(a.real * inverse % self._p, -a.imaginary * inverse % self._p, 1 / a.exact if a.exact else None)

    def _power(self, base_tree: Tree, exponent_tree: Tree) -> Value:
        base = self.value(base_tree)
        exponent = Field(self._budget, self._point, EXPONENTS).value(exponent_tree)
        self._budget.spend()
        if base.real == base.imaginary == 0:
            if exponent.exact is None or exponent.exact <= 0:
                raise UnreadableError("a power of 0 that is not positive")
            return base
        if exponent.exact is None:
            return self._unknown_power(base, exponent)
        if abs(exponent.exact.numerator) > MAX_EXPONENT:
            raise UnreadableError("an exponent outside the bounds")
        if exponent.exact.denominator == 1:
            return self._whole_power(base, exponent.exact.numerator)
        return self._root(base, exponent.exact)

    def _whole_power(self, base: Value, exponent: int) -> Value:
        if exponent < 0:
            base, exponent = self._inverse(base), -exponent
        if not base.imaginary:
            return Value(pow(base.real, exponent, self._p), exact=_exact_power(base.exact, exponent))
        result = Value(1)
        for bit in f"{exponent:b}":
            result = self._multiply(result, result)
            if bit == "1":
                result = self._multiply(result, base)
        return result

    def _unknown_power(self, base: Value, exponent: Value) -> Value:
        """Return base^exponent, where the exponent is an element of the field of q elements or opaque."""
        if self._p != NUMBERS or base.imaginary or exponent.imaginary or not self._is_square(base.real):
            return self._opaque("^", base, exponent)
        return Value(pow(base.real, exponent.real, self._p))

    def _root(self, base: Value, exponent: Fraction) -> Value:
        """Return base^(u/v). A negative base has the real root if v is odd, and i times a root if v is 2."""
        u, v = exponent.numerator, exponent.denominator
        if base.imaginary or math.gcd(v, self._order) != 1:
            return self._opaque("^", base, Value(u), Value(v))
        if base.exact is not None and v == 2:
            return self._square_root(base.exact, u)
        negative = not self._is_square(base.real)
        size = -base.real % self._p if negative else base.real
        root = pow(size, u * pow(v, -1, self._order) % self._order, self._p)
        if not negative:
            return Value(root)
        if v % 2:
            return Value(-root % self._p if u % 2 else root)
        if v == 2:
            return self._multiply(self._whole_power(Value(0, 1), u % 4), Value(root))
        return self._opaque("^", base, Value(u), Value(v))

    def _square_root(self, radicand: Fraction, u: int) -> Value:
        """Return radicand^(u/2) as (sqrt(numerator * denominator) / denominator)^u.

        The root of a prime that is no square in the field is imaginary. So for each two of them, -1 among them, the
        root of their product has the other sign. Where a product holds two different primes from 1,000 on, the sign
        of its root may differ from that of the product of their roots.
        """
        whole = radicand.numerator * radicand.denominator
        outside, inside, rest = Fraction(1, radicand.denominator), 1 if whole > 0 else -1, abs(whole)
        imaginary = int(whole < 0)
        for prime in _PRIMES:
            while rest % (prime * prime) == 0:
                rest, outside = rest // (prime * prime), outside * prime
            if rest % prime == 0:
                rest, inside = rest // prime, inside * prime
                imaginary += prime > 100 and not self._is_square(prime)
        root = math.isqrt(rest)
        outside, inside = (outside * root, inside) if root * root == rest else (outside, inside * rest)
        if imaginary % 4 > 1:
            outside = -outside
        square = self._is_square(inside % self._p)
        root = pow(inside if square else -inside, (self._order + 1) // 2, self._p)
        number = Value(root, exact=Fraction(1) if inside == 1 else None) if square else Value(0, root)
        return self._whole_power(self._multiply(self._rational(outside), number), u)

    def _is_square(self, element: int) -> bool:
        self._budget.spend()
        return pow(element, self._order, self._p) == 1

    def _function(self, name: str, values: list[Value]) -> Value:
        given, exact = values[0], values[0].exact
        if name in _TRIGONOMETRIC:
            return self._trigonometric(name, given)
        if name in _ROUNDING and exact is not None:
            return self._rational(Fraction(_ROUNDING[name](exact)))
        known = {"/": self._inverse, "ln": self._logarithm, "abs": self._absolute}.get(name)
        if known:
            return known(given)
        if name == "log":
            return self._multiply(self._logarithm(values[1]), self._inverse(self._logarithm(given)))
        return self._count(name, values) if name in _COUNTS else self._opaque(name, *values)

    def _count(self, name: str, values: list[Value]) -> Value:
        self._budget.spend()
        whole = [each.exact.numerator for each in values if each.exact is not None and each.exact.denominator == 1]
        if len(whole) < len(values):
            return self._opaque(name, *values)
        if not all(0 <= each <= MAX_ARGUMENT for each in whole):
            raise UnreadableError("a factorial or binomial outside the bounds")
        return self._rational(Fraction(math.factorial(*whole) if name == "factorial" else math.comb(*whole)))

    def _logarithm(self, given: Value) -> Value:
        """Return the natural logarithm: of a positive fraction the sum of those of its primes, else an element."""
        if given.exact is None:
            return Value(1) if given == self._name(Tree("e")) else self._opaque("ln", given)
        if given.exact <= 0:
            raise UnreadableError("the logarithm of a number that is not positive")
        total = 0
        for sign, rest in ((1, given.exact.numerator), (-1, given.exact.denominator)):
            whole = rest
            for prime in _PRIMES:
                times = 0
                while whole % prime == 0:
                    whole //= prime
                    times += 1
                if times:
                    total += sign * times * self._square("ln", prime)
            if whole > 1:
                total += sign * self._square("ln", whole)
        return Value(total % self._p, exact=Fraction(0) if given.exact == 1 else None)

    def _trigonometric(self, name: str, given: Value) -> Value:
        """Return a function of an angle by t, an element that stands for the tangent of half of it.

        t is an odd function of the angle. So sine is odd, cosine is even, and sin^2 + cos^2 = 1.
        """
        t = self._multiply(given, self._even("half", given))
        square = self._multiply(t, t)
        sine = self._add(t, t)
        cosine = self._add(Value(1), self._multiply(Value(self._p - 1), square))
        over = self._add(Value(1), square)
        above, below = {
            "sin": (sine, over),
            "cos": (cosine, over),
            "tan": (sine, cosine),
            "cot": (cosine, sine),
            "sec": (over, cosine),
            "csc": (over, sine),
        }[name]
        return self._multiply(above, self._inverse(below))

    def _absolute(self, given: Value) -> Value:
        return self._even("abs", given)

    def _even(self, name: str, given: Value) -> Value:
        return self._opaque(name, self._multiply(given, given))


_ROUNDING: dict[str, Callable[[Fraction], int | Fraction]] = {"abs": abs, "floor": math.floor, "ceil": math.ceil}
_COUNTS = frozenset({"factorial", "binom"})
_TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})


def _short(exact: Fraction | None) -> Fraction | None:
    if exact is None or max(exact.numerator.bit_length(), exact.denominator.bit_length()) > MAX_BITS:
        return None
    return exact


def _exact_power(base: Fraction | None, exponent: int) -> Fraction | None:
    if base is None:
        return None
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * exponent > MAX_BITS:
        return None
    return base ** (exponent if bits > 1 else exponent % 2 + 2)
