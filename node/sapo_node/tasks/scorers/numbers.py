"""Scores numbers by value: whole numbers, fractions, decimals, probabilities, hexadecimal numbers, prime factors."""

import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from math import comb, gcd, prod

from sapo_node.tasks.scorers.notation import DECIMAL, with_ascii_minus, without_degrees
from sapo_node.tasks.scorers.words import is_text_in_any_case
from sapo_node.tasks.task import Task
from sapo_node.tasks.wrappers import BLANKS, plain_number

_INTEGER = re.compile(r"([+-]?[0-9]{1,1000})(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(rf"{DECIMAL}(?:[eE][+-]?[0-9]{{1,3}})?", re.ASCII)


def is_integer(task: Task, answer: str) -> bool:
    """Return whether the answer is the same whole number. Accepted forms are `1234`, `+1,234` and `1 234.00`."""
    expected = _integer(task.answer)
    return expected is not None and _integer(answer) == expected


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(plain_number(text))
    return int(match[1]) if match else None


def is_calendar_answer(task: Task, answer: str) -> bool:
    """Return whether the answer is the same whole number, or the same weekday, yes or no in any case."""
    if _integer(task.answer) is not None:
        return is_integer(task, answer)
    return is_text_in_any_case(task, answer)


def _is_number(task: Task, answer: str) -> bool:
    expected = _number(task.answer)
    return expected is not None and _number(answer) == expected


def _number(text: str) -> Fraction | None:
    """Return the exact value of a decimal, with or without separators between thousands."""
    written = plain_number(text)
    return Fraction(Decimal(written)) if _NUMBER.fullmatch(written) else None


_SIGNIFICANT = re.compile(r"to a maximum of ([0-9]{1,3}) significant digits", re.ASCII)


def is_decimal(task: Task, answer: str) -> bool:
    """Return whether the answer differs from the reference by at most one unit of the last significant digit.

    The prompt says how many digits are significant. The dataset rounds its reference after every step, so the exact
    result, rounded once, may differ by this unit. It differs by more where a difference of close numbers loses digits:
    then the exact result earns nothing (docs/trust/limits.md has how often). reasoning-gym's scorer allows an absolute
    error of 10^-places instead: less than the precision of a large reference, and a tenth of a small one.
    """
    expected, given = _number(task.answer), _number(answer)
    if expected is None or given is None:
        return False
    digits = _SIGNIFICANT.search(task.prompt)
    if digits is None or not expected:
        return given == expected
    leading = Decimal(plain_number(task.answer)).adjusted()
    return abs(given - expected) <= Fraction(10) ** (leading - int(digits[1]) + 1)


def is_nearest_thousandth(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number to three decimals.

    number_format writes its candidates with three decimals. Its reference may have more, which are rounding errors.
    """
    expected, given = _number(task.answer), _number(answer)
    return expected is not None and given is not None and round(1_000 * expected) == round(1_000 * given)


def is_angle(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number of degrees, with or without the unit."""
    return _is_number(task, without_degrees(answer))


_SOLVED = re.compile(r"([a-z]) ?= ?([+-]?[0-9]{1,60}(?:\.0{0,60})?)", re.ASCII)


def is_value_of_variable(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number, alone or behind the letter of the prompt, as in `x = 5`."""
    solved = _SOLVED.fullmatch(answer)
    if solved and solved[1] not in _letters(task.prompt):
        return False
    return _is_number(task, solved[2] if solved else answer)


def _letters(prompt: str) -> set[str]:
    """Return the letters that stand alone in the prompt."""
    return set(re.findall(r"(?<![A-Za-z'])[a-z](?![A-Za-z'])", prompt, re.ASCII))


_PART = r"(?:\{ ?([0-9]{1,1000}) ?\}|([0-9]))"
_FRACTIONS = (
    re.compile(r"([0-9]{1,1000})(?: ?/ ?([0-9]{1,1000}))?", re.ASCII),
    re.compile(rf"\\[dt]?frac ?{_PART} ?{_PART}", re.ASCII),
)
_MAX_SIDES = 4


def is_simplified_fraction(task: Task, answer: str) -> bool:
    """Return whether the answer is the same fraction in lowest terms.

    It is `3/4`, LaTeX frac, dfrac or tfrac, or `3` for 3/1. It may be an equation such as `9/12 = 3/4`, of at most four
    sides. Then every side must be the same fraction, and the last in lowest terms.
    """
    expected = _fraction(task.answer.strip("$ "))
    sides = [_fraction(side.strip(BLANKS)) for side in answer.split("=", _MAX_SIDES)]
    last = sides[-1]
    if expected is None or last is None or len(sides) > _MAX_SIDES or gcd(*last) != 1:
        return False
    return all(side and side[0] * expected[1] == side[1] * expected[0] for side in sides)


def _fraction(text: str) -> tuple[int, int] | None:
    """Return numerator and denominator as written; None if the text is no fraction or the denominator is 0."""
    for style in _FRACTIONS:
        if match := style.fullmatch(text.removeprefix("+")):
            numerator, denominator = (int(part) for part in (*filter(None, match.groups()), "1")[:2])
            return (numerator, denominator) if denominator else None
    return None


_COINS = re.compile(r"(exactly|at least) ([0-9]{1,4}) heads in ([0-9]{1,4}) fair coin flips", re.ASCII)
_PERCENT = re.compile(r" ?\\?%$", re.ASCII)

PRECISION = 2_000
"""A decimal is the probability if it is off by at most one part in this many."""


def is_probability_of_heads(task: Task, answer: str) -> bool:
    """Return whether the answer is the probability of the prompt.

    A fraction must be exact. A decimal or percentage may be off by one part in PRECISION.
    """
    asked = _COINS.search(task.prompt)
    if asked is None:
        return False
    heads, coins = int(asked[2]), int(asked[3])
    ways = comb(coins, heads) if asked[1] == "exactly" else sum(comb(coins, each) for each in range(heads, coins + 1))
    if ratio := _fraction(answer):
        numerator, denominator = ratio
        if numerator << coins == denominator * ways:
            return True
    decimal = _PERCENT.sub("", answer)
    exact = Fraction(ways, 2**coins) * (1 if decimal == answer else 100)
    number = _number(decimal)
    return number is not None and abs(number - exact) * PRECISION <= exact


_HEXADECIMAL = re.compile(r"([+-]?) ?(?:0[xX])?([0-9a-fA-F]{1,1000})", re.ASCII)


def is_hexadecimal(task: Task, answer: str) -> bool:
    """Return whether the answer is the same hexadecimal number, with or without 0x, in any case."""
    expected = _hexadecimal(task.answer)
    return expected is not None and _hexadecimal(answer) == expected


def _hexadecimal(text: str) -> int | None:
    parts = _HEXADECIMAL.fullmatch(with_ascii_minus(text))
    return int(parts[1] + parts[2], 16) if parts else None


_TIMES = re.compile(r" ?(?:\\times|\\cdot|[*x×·⋅∙,;]) ?| ", re.ASCII)
_POWER = re.compile(r"([0-9]{1,20})(?: ?\^ ?\{? ?([1-9][0-9]?) ?\}?)?", re.ASCII)
_SUPERSCRIPTS = str.maketrans({sign: f"^{number}" for number, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})


def has_prime_factors(task: Task, answer: str) -> bool:
    """Return whether the answer has the prime factors of the reference, in any order. Powers may be written as such.

    The number and an equals sign may stand before the factors.
    """
    number, equals, product = answer.rpartition("=")
    expected, given = _factors(task.answer), _factors(product.strip(" "))
    if equals and number.strip(" ") != str(prod(expected.elements())):
        return False
    return bool(expected) and given == expected


def _factors(text: str) -> Counter[int]:
    """Return the factors of a product with their powers; empty if the text is no product."""
    if text[:1] + text[-1:] in {"[]", "()", "{}"}:
        text = text[1:-1]
    factors: Counter[int] = Counter()
    for part in _TIMES.split(text.replace("**", "^").translate(_SUPERSCRIPTS).strip(" ")):
        power = _POWER.fullmatch(part)
        if power is None:
            return Counter()
        factors[int(power[1])] += int(power[2] or 1)
    return factors
