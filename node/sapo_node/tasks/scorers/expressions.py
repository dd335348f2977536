"""Scores expressions with exact rational numbers: sums of monomials, complex numbers, coordinates, and Countdown.

Nothing here evaluates text as code. Each grammar is small and read once from left to right.
"""

import operator
import re
from collections.abc import Mapping
from fractions import Fraction

from sapo_node.tasks.scorers.notation import balanced, rational, without_degrees
from sapo_node.tasks.task import Task

_SIGNS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})  # noqa: RUF001 - signs of people


def _plain(text: str) -> str:
    """Return the text in ASCII signs, without blanks and without LaTeX's commands for size, product and quotient.

    Empty if a blank stands inside a number.
    """
    text = _unsized(text.translate(_SIGNS))
    for command in ("\\cdot", "\\times"):
        text = text.replace(command, "*")
    text = text.replace("\\div", "/").replace("**", "^")
    return "" if _SPLIT_NUMBER.search(text) else text.replace(" ", "").replace("\n", "")


def _unsized(text: str) -> str:
    return text.replace("\\left", "").replace("\\right", "")


_SPLIT_NUMBER = re.compile("[0-9.][ \n]+[0-9.]")


_COEFFICIENT = r"[0-9]{1,30}(?:\.[0-9]{1,30})?(?:/[0-9]{1,30})?"
_LATEX = r"\\[dt]?frac\{[0-9]{1,30}\}\{[0-9]{1,30}\}"
_POWER = r"(?:\^(?:[0-9]{1,4}|\{[0-9]{1,4}\}|\([0-9]{1,4}\)))?"
_TIMES = r"(?:\*(?=[A-Za-z]))?"
_TERM = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<number>{_COEFFICIENT}|\({_COEFFICIENT}\)|{_LATEX}){_TIMES})?"
    rf"(?P<letters>(?:[A-Za-z]{_POWER}{_TIMES}){{0,8}})(?:/(?P<divisor>[0-9]{{1,30}}))?"
)
_LETTER = re.compile(r"([A-Za-z])(?:\^[({]?([0-9]+))?")

Monomial = tuple[tuple[str, int], ...]
"""Letters with their exponents, sorted: x**2*y is (("x", 2), ("y", 1))."""


def polynomial(text: str) -> Mapping[Monomial, Fraction] | None:
    """Return the coefficient of each monomial of an expanded sum; None if the text is none.

    A monomial may appear once. A product is none: not (x + 1)*(x - 1), and x*x is another monomial than x**2.
    """
    text, position = _plain(text), 0
    found: dict[Monomial, Fraction] = {}
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or match.end() == position or (position and not match["sign"]):
            return None
        term = _monomial(match)
        if term is None or term[0] in found:
            return None
        found[term[0]] = term[1]
        position = match.end()
    return {monomial: coefficient for monomial, coefficient in found.items() if coefficient} if text else None


def _monomial(match: re.Match[str]) -> tuple[Monomial, Fraction] | None:
    number, letters, divisor = match["number"], match["letters"], int(match["divisor"] or 1)
    if not (number or letters) or not divisor:
        return None
    coefficient = _coefficient(number.strip("()")) if number else Fraction(1)
    powers = [(found[1], int(found[2] or 1)) for found in _LETTER.finditer(letters)]
    if coefficient is None:
        return None
    monomial = tuple(sorted((letter, power) for letter, power in powers if power))
    return monomial, (-coefficient if match["sign"] == "-" else coefficient) / divisor


def _coefficient(text: str) -> Fraction | None:
    """Return the value of a decimal, of a decimal by a whole number, or of a LaTeX fraction."""
    above, slash, below = text.partition("/")
    value = rational(above)
    if value is None or not slash:
        return value
    return value / int(below) if int(below) else None


def is_product(task: Task, answer: str) -> bool:
    """Return whether the answer is the same polynomial, expanded."""
    expected = polynomial(task.answer)
    return expected is not None and polynomial(answer) == expected


def is_antiderivative(task: Task, answer: str) -> bool:
    """Return whether the answer is the same polynomial but for its constants. The case of letters is free."""
    expected, given = (polynomial(text.lower()) for text in (task.answer, answer))
    return expected is not None and given is not None and _without_constants(given) == _without_constants(expected)


def _without_constants(terms: Mapping[Monomial, Fraction]) -> Mapping[Monomial, Fraction]:
    constants: tuple[Monomial, ...] = ((), (("c", 1),))
    return {monomial: coefficient for monomial, coefficient in terms.items() if monomial not in constants}


def share_of_complex(task: Task, answer: str) -> Fraction:
    """Return the correct share of a complex number. Its real and its imaginary part count half each."""
    expected, given = _complex(task.answer), _complex(answer)
    if expected is None or given is None:
        return Fraction(0)
    return Fraction(sum(one == other for one, other in zip(expected, given, strict=True)), 2)


def _complex(text: str) -> tuple[Fraction, Fraction] | None:
    if not balanced(text):
        return None
    parts = polynomial(text.strip("()").lower().replace("j", "i"))
    if parts is None or not parts.keys() <= {(), (("i", 1),)}:
        return None
    return parts.get((), Fraction(0)), parts.get((("i", 1),), Fraction(0))


def share_of_geometry(task: Task, answer: str) -> Fraction:
    """Return the correct share of the coordinates, or of the one number.

    A number is correct if it rounds to the reference, so a more exact decimal or a fraction is correct as well.
    """
    if answer.count(",") != task.answer.count(","):
        return Fraction(0)
    expected, given = _numbers(task.answer), _numbers(answer)
    if not expected or not given:
        return Fraction(0)
    unit = Fraction(1, 10 ** len(task.answer.rstrip("°)").rpartition(".")[2]))
    right = sum(2 * abs(one - other) <= unit for one, other in zip(given, expected, strict=True))
    return Fraction(right, len(expected))


def _numbers(text: str) -> list[Fraction]:
    """Return the numbers between commas, in parentheses or brackets or none, with a degree sign or none.

    Empty if one of them is no number.
    """
    parts = _unsized(without_degrees(text)).strip(" ()[]").split(",")
    numbers = [number for part in parts if (number := rational(part.strip(" "))) is not None]
    return numbers if len(numbers) == len(parts) and balanced(text) else []


_TOKEN = re.compile(r"[0-9]{1,9}|[-+*/()]")
_BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "negate": 3}


def is_countdown(task: Task, answer: str) -> bool:
    """Return whether the answer is an expression of the target with each given number once, and + - * / alone."""
    target, numbers = task.metadata["target"], sorted(task.metadata["numbers"])
    expression, _, result = _plain(answer).partition("=")
    if result not in ("", str(target)):
        return False
    tokens = _tokens(expression)
    if sorted(int(part) for part in tokens if part.isdecimal()) != numbers:
        return False
    return bool(_value(tokens) == target)


def _tokens(text: str) -> list[str]:
    """Return the tokens of an expression; empty if the text holds anything else."""
    tokens = _TOKEN.findall(text)
    return tokens if sum(map(len, tokens)) == len(text) else []


def _value(tokens: list[str]) -> Fraction | None:
    """Return the value of an expression, exactly; None if it is malformed or divides by zero.

    This is Dijkstra's shunting yard: a stack of values and one of operators, so that no depth of parentheses overflows.
    """
    values: list[Fraction] = []
    waiting: list[str] = []
    expects_operand = True
    for part in tokens:
        if part.isdecimal() or part == "(":
            if not expects_operand:
                return None
            if part == "(":
                waiting.append(part)
            else:
                values.append(Fraction(int(part)))
                expects_operand = False
        elif expects_operand:
            if part != "-":
                return None
            waiting.append("negate")
        elif part == ")":
            if not _apply(values, waiting, 0) or not waiting:
                return None
            waiting.pop()
        else:
            if not _apply(values, waiting, _PRECEDENCE[part]):
                return None
            waiting.append(part)
            expects_operand = True
    if expects_operand or not _apply(values, waiting, 0) or waiting:
        return None
    return values[0]


def _apply(values: list[Fraction], waiting: list[str], least: int) -> bool:
    """Apply the waiting operators down to a parenthesis or to a precedence below `least`. False if one divides by 0."""
    while waiting and waiting[-1] != "(" and _PRECEDENCE[waiting[-1]] >= least:
        sign, right = waiting.pop(), values.pop()
        if sign == "negate":
            values.append(-right)
            continue
        left = values.pop()
        if sign == "/" and not right:
            return False
        values.append(_BINARY[sign](left, right))
    return True
