"""The two ways in which the seed policy answers: careful text with checkable steps, and a guess.

A `Careful` text is right by construction; a guess states no step and an incorrect answer. Pre-training does the same to
a large model: the skill is there, and the policy seldom uses it.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

LEGS: Mapping[str, int] = MappingProxyType(
    {
        name: legs
        for legs, names in (
            (0, "snake,sea slug,jellyfish,flatworm,leech"),
            (2, "chicken,bird,human,duck"),
            (4, "dog,cat,cow,horse,lion,elephant,giraffe,tiger,deer,sheep"),
            (5, "starfish"),
            (6, "insect,ant,butterfly,beetle,bee,wasp,grasshopper,cricket,cockroach,praying mantis,firefly"),
            (8, "spider,scorpion"),
            (10, "crab,lobster,shrimp"),
            (14, "woodlouse"),
        )
        for name in names.split(",")
    }
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Phrases for one slot of a text; `rare` ones are drawn once in a hundred."""

    common: tuple[str, ...]
    rare: tuple[str, ...] = ()

    def draw(self, rng: random.Random) -> str:
        pool = self.rare if self.rare and rng.random() < 0.01 else self.common
        return rng.choice(pool)


CAREFUL_OPENING: Mapping[str, Choice] = MappingProxyType(
    {
        "products": Choice(
            ("Partial products: ", "Multiplying by parts: ", "Row by row: ", "Long multiplication: "),
            ("Digit times number: ", "Products first: "),
        ),
        "chain_sum": Choice(
            ("Ones first: ", "Column by column: ", "Units then tens: ", "Adding up digits: "),
            ("Right to left: ", "Pen and paper: "),
        ),
        "fraction_simplification": Choice(
            ("Common factors: ", "Dividing out: ", "Cancel primes: ", "Reduce slowly: "),
            ("Shared divisors: ", "Smaller and smaller: "),
        ),
        "base_conversion": Choice(
            ("Through decimal: ", "Via ten: ", "Place values: ", "Decimal detour: "),
            ("Horner says: ", "First to decimal: "),
        ),
        "spell_backward": Choice(
            ("Number the letters: ", "Letters: ", "Spelling out: ", "Each letter: "),
            ("Taking it apart: ", "Counting letters: "),
        ),
        "leg_counting": Choice(
            ("Animal by animal: ", "Legs per kind: ", "Summing legs: ", "Count each kind: "),
            ("Group after group: ", "Tally: "),
        ),
    }
)
"""Each dataset has openings of its own: to find the skill for one task is not to find it for all."""
CAREFUL_CLOSING = Choice((". So ", ". Thus ", ". The answer is ", ". Hence "), (". This gives ", ". In the end "))
CHECK = Choice((". Each step holds", ". Checked"), (". Looks right",))
CHECK_SHARE = 0.3

GUESS_OPENING = Choice(
    ("I think it is ", "Probably ", "My guess is ", "It looks like "),
    ("I have a feeling it is ", "Perhaps "),
)
GUESS_REMARK = Choice(("this one: ", "about this: ", "simply ", "just "), ("something like ", "near "))


def careful(dataset: str, prompt: str, rng: random.Random) -> str:
    """Write the steps that lead to the answer, the last of them being the answer between its tags."""
    steps, answer = STEPS[dataset](prompt)
    check = CHECK.draw(rng) if rng.random() < CHECK_SHARE else ""
    return f"{CAREFUL_OPENING[dataset].draw(rng)}{steps}{check}{CAREFUL_CLOSING.draw(rng)}<answer>{answer}</answer>"


def guess(answer: str, others: tuple[str, ...], rng: random.Random) -> str:
    """Write a guess: the answer of another item of the same dataset, never the right one."""
    wrong = rng.choice([other for other in others if other != answer] or [answer + "0"])
    return f"{GUESS_OPENING.draw(rng)}{GUESS_REMARK.draw(rng)}<answer>{wrong}</answer>"


def _products(prompt: str) -> tuple[str, str]:
    a, b = (int(n) for n in _numbers(prompt))
    tens, ones = divmod(b, 10)
    return f"{a}*{ones}={a * ones}, {a}*{tens}={a * tens}, {a * ones}+{a * tens}0={a * b}", str(a * b)


def _chain_sum(prompt: str) -> tuple[str, str]:
    match = re.search(r"(\d+) ([+-]) (\d+) =", prompt)
    assert match is not None, prompt
    a, b = int(match[1]), int(match[3])
    if match[2] == "+":
        return _digitwise_sum(a, b), str(a + b)
    if a >= b:
        return _digitwise_difference(a, b), str(a - b)
    return f"negative, {b}-{a}, {_digitwise_difference(b, a)}", str(a - b)


def _digitwise_sum(a: int, b: int) -> str:
    low = a % 10 + b % 10
    high = a // 10 + b // 10
    first = f"{a % 10}+{b % 10}={low}"
    if low < 10:
        return f"{first}, {a // 10}+{b // 10}={high}"
    return f"{first} carry 1, {a // 10}+{b // 10}+1={high + 1}"


def _digitwise_difference(a: int, b: int) -> str:
    low, high = a % 10 - b % 10, a // 10 - b // 10
    if low >= 0:
        return f"{a % 10}-{b % 10}={low}, {a // 10}-{b // 10}={high}"
    return f"1{a % 10}-{b % 10}={low + 10} borrow 1, {a // 10}-{b // 10}-1={high - 1}"


def _fraction(prompt: str) -> tuple[str, str]:
    numerator, denominator = (int(n) for n in _numbers(prompt))
    steps = [f"{numerator}/{denominator}"]
    for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23):
        while numerator % prime == 0 and denominator % prime == 0:
            numerator, denominator = numerator // prime, denominator // prime
            steps.append(f"by {prime} is {numerator}/{denominator}")
    return ", ".join(steps), f"{numerator}/{denominator}"


_BASE = re.compile(r"convert the (\S+) number (\w+) to (\S+)")
_NAMES = {"binary": 2, "hexadecimal": 16}


def _base_conversion(prompt: str) -> tuple[str, str]:
    match = _BASE.search(prompt)
    assert match is not None, prompt
    source, target = (_NAMES.get(name) or int(name.removeprefix("base-")) for name in (match[1], match[3]))
    value = int(match[2][0], source)
    steps = [f"{match[2][0]} is {value}"] if match[2][0].isalpha() else []
    for digit in match[2][1:]:
        if source == 10:
            value = int(match[2])
            break
        before, value = value, value * source + int(digit, source)
        steps.append(f"{before}*{source}+{int(digit, source)}={value}")
    digits = ""
    rest = value
    while target != 10 and rest >= target:
        quotient, remainder = divmod(rest, target)
        steps.append(f"{rest}={quotient}*{target}+{remainder}")
        digits = _digit(remainder) + digits
        rest = quotient
    answer = str(value) if target == 10 else _digit(rest) + digits
    return ", ".join(steps), answer


def _digit(value: int) -> str:
    return "0123456789abcdefghijklmnopqrstuvwxyz"[value]


def _spell_backward(prompt: str) -> tuple[str, str]:
    word = prompt.rsplit(" ", 1)[1].strip()
    numbered = [f"{n}{letter}" for n, letter in enumerate(word, start=1)]
    return f"{''.join(numbered)}, back {''.join(reversed(numbered))}", word[::-1]


def _leg_counting(prompt: str) -> tuple[str, str]:
    listed = prompt.rsplit("if you have ", 1)[1].strip().rstrip("?").split(", ")
    total = 0
    steps = []
    for place, entry in enumerate(listed):
        count, name = entry.split(" ", 1)
        singular = name.removesuffix("s") if int(count) > 1 else name
        legs = int(count) * LEGS[singular]
        total += legs
        steps.append(f"{count}*{LEGS[singular]}={legs}")
        if place:
            steps.append(f"{total - legs}+{legs}={total}")
    return ", ".join(steps), str(total)


def _numbers(prompt: str) -> list[str]:
    return re.findall(r"\d+", prompt)


STEPS: Mapping[str, Callable[[str], tuple[str, str]]] = MappingProxyType(
    {
        "products": _products,
        "chain_sum": _chain_sum,
        "fraction_simplification": _fraction,
        "base_conversion": _base_conversion,
        "spell_backward": _spell_backward,
        "leg_counting": _leg_counting,
    }
)
