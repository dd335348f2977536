r"""Decides whether two texts state the same mathematical object."""

import re
from fractions import Fraction
from itertools import pairwise

from sapo_node.tasks.mathematics.field import NUMBERS, Budget, Value
from sapo_node.tasks.mathematics.reader import Expression, Form, Group, Relation, read
from sapo_node.tasks.mathematics.tree import MAX_TEXT, UnreadableError
from sapo_node.tasks.mathematics.vocabulary import FUNCTIONS

PLACES = 6
"""Places of a decimal that may stand for a fraction which it only comes near, at least."""
NEAR = Fraction(1, 10**PLACES)
"""Difference between such a decimal and the fraction, at most."""
NEAR_SHARE = Fraction(1, 1_000)
"""Share of the fraction that this difference is, at most."""
MAX_RATIO = 10**12
"""Numerator and denominator of the number by which one inequality is multiplied to give the other, at most."""


def equal(reference: str, answer: str) -> bool:
    r"""Return whether `answer` states the same mathematical object as `reference`. It raises for no text.

    Either is LaTeX or plain text of at most 4,096 characters, free of `\boxed`, bold and sentences around it. `$`,
    layout commands and `\text{}` may stand inside. A command may be escaped twice, as in `\\le`. The order of the two
    makes no difference.

    Accepted as equal:

    - Numbers of one value: `\frac{3}{4}`, `0.75`, `6/8`, `1 - 2^{-2}`; `1,234` and `1{,}234`; `2\frac{1}{2}` and `2.5`;
      `2\sqrt{3}` and `\sqrt{12}`; `9\pi`, `e^2` and `\exp(2)`; complex numbers; `28\%` with `0.28` and with `28`.
    - A decimal of six or more places within 10^-6 of a fraction whose own places do not end at the sixth.
    - Expressions with letters, equal by the rules of arithmetic and powers: `2^{n+1} - 2` and `2(2^n - 1)`.
    - `x = 5` and `5`; `(p,q) = (2,3)` and `(2,3)`; `f(1) + f(2) = 5` and `5`; a chain whose sides are all equal:
      `x = 6/2 = 3`.
    - Equations that are multiples of one another: `2x - y + 3 = 0` and `y = 2x + 3`. Inequalities likewise, and as
      intervals: `1 < x \le 2`, `(1, 2]`, `x \in (1, 2]`.
    - Lists and sets with the same members in any order: `1, 2`, `2 and 1`, `\{1, 2\}`, `\frac{3 \pm 1}{2}`.
    - Tuples, intervals, ratios and matrices with the same parts in the same order. Unions of the same intervals.
    - A number with a unit and without; with two units only if they mean the same: `5 cm` and `5\text{ centimeters}`.
    - The same words: `\text{(C)}` and `C`, `Even` and `even`. A single letter must have the same case.

    Refused:

    - Several candidates for one value: `12 or 13`, `12 = 13`, `12 \pm 1`, `\{12, 13\}`.
    - What has no value: division by 0, `0^0`, arithmetic with infinity.
    - Digits of other scripts, unknown commands, sums and integrals with bounds, and texts beyond a bound: 1,024 tokens,
      64 expressions, 256 costly operations, 23 brackets inside one another, 100 digits, an exponent of a million.
    - A decimal for a root or for pi: `1.41421356` is not `\sqrt{2}`.
    - Values of functions that need more than sin^2 + cos^2 = 1 or the rules of logarithms of fractions: `\sin 30^\circ`
      is not `\frac{1}{2}`.

    A false agreement can be solved for (see `field`); it earns no more than the reference does.
    """
    reference, answer = reference.strip(" "), answer.strip(" ")
    if not answer or max(len(reference), len(answer)) > MAX_TEXT:
        return False
    if reference == answer:
        return True
    expected, given = _words(reference), _words(answer)
    if expected and given:
        if expected == given:
            return True
        if any(len(word) > 2 for word in (*expected, *given)) or len(expected) == len(given) == 1 != len(expected[0]):
            return False
    budget = Budget()
    try:
        return any(_match(one, other, budget) for one in _readings(reference) for other in _readings(answer))
    except UnreadableError:
        return False


_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm|sf|normal)?|textnormal|mbox|mathrm|mathbf) ?\{([^{}]*)\}")
_LAYOUT = re.compile(r"\\[()\[\] ]|\$")
_PROSE = re.compile(r"[A-Za-z(][A-Za-z ',.()]*")


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text that has letters, blanks and punctuation alone; () for others.

    Several words are prose only if one has three letters and none is a function. Case counts in single letters.
    """
    text = _LAYOUT.sub(" ", _WRAPPER.sub(r"\1", text)).strip(" ")
    if not _PROSE.fullmatch(text):
        return ()
    words = re.findall("[A-Za-z']+", text)
    if len(words) > 1 and (max(map(len, words)) < 3 or set(words) & FUNCTIONS):
        return ()
    return tuple(word.lower() if len(word) > 1 else word for word in words)


_DECIMAL_COMMA = re.compile(r"([+-]?[0-9]{1,15}),([0-9]{2,15})")


def _readings(text: str) -> list[Form]:
    """Return the forms that the text may state: none, one, or, for `2,74`, a list and a decimal."""
    comma = _DECIMAL_COMMA.fullmatch(text.replace("$", ""))
    found = []
    for each in [text, f"{comma[1]}.{comma[2]}"] if comma else [text]:
        try:
            found.append(read(each))
        except UnreadableError:
            continue
    return found


_UNORDERED = frozenset({"list", "and", "or", "signs", "set", "union"})


def _match(one: Form, other: Form, budget: Budget) -> bool:
    one, other = _single(one), _single(other)
    match one, other:
        case Relation(), Relation():
            return _relations(one, other, budget)
        case Relation(), _:
            return _stated(one, other, budget)
        case _, Relation():
            return _stated(other, one, budget)
        case Expression(), Expression():
            return _expressions(one, other)
        case Group(), Group():
            return _groups(one, other, budget)
        case _:
            return False


def _single(form: Form) -> Form:
    """Return the member of a list with one value, and the value of a chain of equal expressions: `1/2 = 0.5`."""
    if isinstance(form, Group) and form.kind in _UNORDERED - {"set", "union"}:
        first = form.parts[0]
        if isinstance(first, Expression) and all(
            isinstance(part, Expression) and _expressions(first, part) for part in form.parts
        ):
            return first
    if (
        isinstance(form, Group)
        and form.kind == "union"
        and all(isinstance(part, Group) and part.kind == "set" for part in form.parts)
    ):
        return Group("set", tuple(_members(form)))
    if isinstance(form, Relation) and set(form.signs) == {"="} and not any(form.names) and _agree(form.sides):
        return form.sides[-1]
    return form


def _agree(sides: tuple[Form, ...]) -> bool:
    return all(
        isinstance(left, Expression) and isinstance(right, Expression) and _expressions(left, right)
        for left, right in pairwise(sides)
    )


def _expressions(one: Expression, other: Expression) -> bool:
    if one.unit and other.unit and one.unit != other.unit:
        return False
    if _values(one.value, other.value, (one.places, other.places)):
        return True
    if one.percent == other.percent:
        return False
    percent, plain = (one.value, other.value) if one.percent else (other.value, one.value)
    hundred = Value(plain.real * 100 % NUMBERS, plain.imaginary * 100 % NUMBERS, plain.exact and plain.exact * 100)
    return _values(percent, hundred)


def _values(one: Value, other: Value, places: tuple[int, int] = (0, 0)) -> bool:
    if one.exact is None or other.exact is None:
        return (one.real, one.imaginary) == (other.real, other.imaginary)
    if one.exact == other.exact:
        return True
    return _comes_near(one.exact, other.exact, places[0]) or _comes_near(other.exact, one.exact, places[1])


def _comes_near(decimal: Fraction, fraction: Fraction, places: int) -> bool:
    """Return whether a decimal with so many places stands for a fraction whose own places do not end at the sixth."""
    if places < PLACES or NEAR.denominator % fraction.denominator == 0:
        return False
    return abs(decimal - fraction) <= min(NEAR, NEAR_SHARE * abs(fraction))


def _groups(one: Group, other: Group, budget: Budget) -> bool:
    kinds = {one.kind, other.kind}
    if kinds <= _UNORDERED:
        return _may_agree(one, other) and _same_members(_members(one), _members(other), budget)
    if kinds == {"tuple", "list"}:
        alike = one.brackets + other.brackets == "()"
    else:
        alike = len(kinds) == 1 and (one.brackets == other.brackets or len(one.parts) > 2)
    return (
        alike
        and len(one.parts) == len(other.parts)
        and all(_match(*pair, budget) for pair in zip(one.parts, other.parts, strict=True))
    )


def _may_agree(one: Group, other: Group) -> bool:
    """Return whether unordered groups of these kinds state the same if they have the same members.

    A union is one of intervals, so it is no list of pairs. Of inequalities `and` states another set than `or`.
    """
    kinds = {one.kind, other.kind}
    if "union" in kinds:
        return kinds <= {"union", "or"}
    return kinds != {"and", "or"} or not any(isinstance(part, Relation) and "=" not in part.signs for part in one.parts)


def _members(group: Group) -> list[Form]:
    """Return the members of a set: those of sets inside a union and values of double signs among them."""
    members: list[Form] = []
    for part in group.parts:
        value = _value_of(part)
        if isinstance(value, Group) and (value.kind == "signs" or (group.kind == "union" and value.kind == "set")):
            members += value.parts
        else:
            members.append(part)
    return members


def _value_of(form: Form) -> Form:
    return form.sides[-1] if isinstance(form, Relation) and form.names[0] else form


def _same_members(some: list[Form], others: list[Form], budget: Budget) -> bool:
    return all(any(_match(one, other, budget) for other in others) for one in some) and all(
        any(_match(one, other, budget) for one in some) for other in others
    )


def _stated(relation: Relation, other: Form, budget: Budget) -> bool:
    """Return whether the relation states the form: `x = 5` states 5, `1 < x <= 2` the interval (1, 2]."""
    if set(relation.signs) <= {"="}:
        if not relation.names[0] or not (len(relation.sides) <= 2 or _agree(relation.sides[1:])):
            return False
        return _match(relation.sides[-1], other, budget)
    interval = _interval(relation)
    return interval is not None and _match(interval, other, budget)


def _interval(relation: Relation) -> Group | None:
    sides, names, signs = relation.sides, relation.names, relation.signs
    if not set(signs) <= {"<", "<="}:
        return None
    if len(sides) == 3 and names[1]:
        lower, upper = sides[0], sides[2]
    elif len(sides) == 2 and names[0]:
        lower, upper, signs = _infinite("-"), sides[1], ("<", *signs)
    elif len(sides) == 2 and names[1]:
        lower, upper, signs = sides[0], _infinite("+"), (*signs, "<")
    else:
        return None
    return Group("tuple", (lower, upper), "(["[signs[0] == "<="] + ")]"[signs[1] == "<="])


def _subject(relation: Relation) -> str:
    """Return the name that a relation bounds."""
    return "".join(relation.names[1:2] if len(relation.names) == 3 else relation.names)


def _infinite(sign: str) -> Form:
    return read(f"{sign}\\infty")


def _relations(one: Relation, other: Relation, budget: Budget) -> bool:
    if one.signs == other.signs and one.differences and other.differences:
        ordered = not {"=", "!="} & set(one.signs)
        pairs = zip(one.differences, other.differences, strict=True)
        if all(_proportional(*pair, positive=ordered, budget=budget) for pair in pairs):
            return True
    if set(one.signs) | set(other.signs) <= {"="} and (
        one.names[0] == other.names[0] or not one.signs or not other.signs
    ):
        return bool(one.names[0]) and _stated(one, _value_of(other), budget)
    if one.signs and other.signs and _subject(one) != _subject(other):
        return False
    left: Form | None = _interval(one) if one.signs else _value_of(one)
    right: Form | None = _interval(other) if other.signs else _value_of(other)
    return left is not None and right is not None and _match(left, right, budget)


def _proportional(some: tuple[Value, ...], others: tuple[Value, ...], *, positive: bool, budget: Budget) -> bool:
    """Return whether one difference is the other times a number, at all points; if asked, a positive fraction."""
    first, second = some[0], others[0]
    if not (first.real or first.imaginary) or not (second.real or second.imaginary):
        return False
    if any(_times(one, second) != _times(other, first) for one, other in zip(some, others, strict=True)):
        return False
    return not positive or _is_positive_ratio(first, second, budget)


def _times(one: Value, other: Value) -> tuple[int, int]:
    real = one.real * other.real - one.imaginary * other.imaginary
    return real % NUMBERS, (one.real * other.imaginary + one.imaginary * other.real) % NUMBERS


def _is_positive_ratio(one: Value, other: Value, budget: Budget) -> bool:
    """Return whether the first is the second times u/v with 0 < u, v <= MAX_RATIO: Euclid's algorithm finds u and v."""
    budget.spend()
    if one.imaginary or other.imaginary:
        return False
    above, below = NUMBERS, one.real * pow(other.real, -1, NUMBERS) % NUMBERS
    v_above, v = 0, 1
    while below > MAX_RATIO:
        quotient = above // below
        above, below = below, above - quotient * below
        v_above, v = v, v_above - quotient * v
    return 0 < v <= MAX_RATIO and below > 0
