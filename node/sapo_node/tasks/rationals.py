"""Scorers of exact numbers other than whole ones: probabilities, hexadecimal numbers, prime factors, angles."""

import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from math import comb

from sapo_node.tasks.task import Task

_COINS = re.compile(r"(exactly|at least) ([0-9]{1,4}) heads in ([0-9]{1,4}) fair coin flips", re.ASCII)
_RATIOS = (
    re.compile(r"([0-9]{1,1000}) ?/ ?([0-9]{1,1000})", re.ASCII),
    re.compile(r"\\[dt]?frac ?\{ ?([0-9]{1,1000}) ?\} ?\{ ?([0-9]{1,1000}) ?\}", re.ASCII),
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_PERCENT = re.compile(r" ?\\?%", re.ASCII)
_GROUPS = re.compile(r"^[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])", re.ASCII)

PRECISION = 2_000
"""A decimal is the probability if it is off by at most one part in this many."""


def is_probability_of_heads(task: Task, answer: str) -> bool:
    """Return whether the answer is the probability that the prompt asks for.

    A fraction must be exact. A decimal or percentage may be off by one part in PRECISION.
    """
    asked = _COINS.search(task.prompt)
    if asked is None:
        return False
    heads, coins = int(asked[2]), int(asked[3])
    ways = comb(coins, heads) if asked[1] == "exactly" else sum(comb(coins, each) for each in range(heads, coins + 1))
    for form in _RATIOS:
        if ratio := form.fullmatch(answer):
            numerator, denominator = int(ratio[1]), int(ratio[2])
            return denominator != 0 and numerator << coins == denominator * ways
    percent = _PERCENT.search(answer)
    number = _decimal(answer[: percent.start()] if percent and percent.end() == len(answer) else answer)
    exact = Fraction(ways, 2**coins) * (100 if percent else 1)
    return number is not None and abs(number - exact) * PRECISION <= exact


_HEXADECIMAL = re.compile(r"([+-]?) ?(?:0[xX])?([0-9a-fA-F]{1,1000})", re.ASCII)


def is_hexadecimal(task: Task, answer: str) -> bool:
    """Return whether the answer is the same hexadecimal number, with or without 0x, in any case."""
    expected = _hexadecimal(task.answer)
    return expected is not None and _hexadecimal(answer) == expected


def _hexadecimal(text: str) -> int | None:
    parts = _HEXADECIMAL.fullmatch(text.replace("−", "-"))
    return int(parts[1] + parts[2], 16) if parts else None


def is_nearest_thousandth(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number to three decimals.

    number_format writes its candidates with three decimals. Its reference may have more, which are rounding errors.
    """
    expected, given = _decimal(task.answer), _decimal(answer)
    return expected is not None and given is not None and round(1_000 * expected) == round(1_000 * given)


_UNIT = re.compile(r" ?(?:°|degrees?|\^ ?\\circ|\^ ?\{ ?\\circ ?\})", re.ASCII)


def is_angle(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number of degrees, with or without the unit."""
    unit = _UNIT.search(answer)
    number = answer[: unit.start()] if unit and unit.end() == len(answer) else answer
    expected, given = _decimal(task.answer), _decimal(number)
    return expected is not None and given == expected


_SOLVED = re.compile(r"([a-z]) ?= ?([+-]?[0-9]{1,60}(?:\.0{0,60})?)", re.ASCII)


def is_value_of_variable(task: Task, answer: str) -> bool:
    """Return whether the answer is the same number, alone or behind the letter of the prompt, as in `x = 5`."""
    solved = _SOLVED.fullmatch(answer)
    if solved and solved[1] not in _letters(task.prompt):
        return False
    expected, given = _decimal(task.answer), _decimal(solved[2] if solved else answer)
    return expected is not None and given == expected


def _letters(prompt: str) -> set[str]:
    """Return the letters that stand alone in the prompt."""
    return set(re.findall(r"(?<![A-Za-z'])[a-z](?![A-Za-z'])", prompt, re.ASCII))


_TIMES = re.compile(r" ?(?:\\times|\\cdot|[*x×·⋅∙,;]) ?| ", re.ASCII)
_POWER = re.compile(r"([0-9]{1,20})(?: ?\^ ?\{? ?([1-9][0-9]?) ?\}?)?", re.ASCII)
_SUPERSCRIPTS = str.maketrans({sign: f"^{number}" for number, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})


def has_prime_factors(task: Task, answer: str) -> bool:
    """Return whether the answer has the prime factors of the reference, in any order. Powers may be written as such.

    The number and an equals sign may stand before the factors.
    """
    number, equals, product = answer.rpartition("=")
    expected, given = _factors(task.answer), _factors(product.strip(" "))
    if equals and number.strip(" ") != str(_product(expected)):
        return False
    return bool(expected) and given == expected


def _factors(text: str) -> Counter[int]:
    """Return how often each factor stands in a product; nothing if the text is none."""
    if text[:1] + text[-1:] in {"[]", "()", "{}"}:
        text = text[1:-1]
    powers = [
        _POWER.fullmatch(part) for part in _TIMES.split(text.replace("**", "^").translate(_SUPERSCRIPTS).strip(" "))
    ]
    factors: Counter[int] = Counter()
    for power in powers:
        if power is None:
            return Counter()
        factors[int(power[1])] += int(power[2] or 1)
    return factors


def _product(factors: Counter[int]) -> int:
    product = 1
    for factor, power in factors.items():
        product *= factor**power
    return product


def _decimal(text: str) -> Fraction | None:
    """Return the exact value of a decimal, with or without commas between thousands."""
    plain = _GROUPS.sub(lambda groups: groups[0].replace(",", ""), text.replace("−", "-"))
    return Fraction(Decimal(plain)) if _DECIMAL.fullmatch(plain) else None
