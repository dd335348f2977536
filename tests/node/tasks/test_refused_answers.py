"""How many correct answers earn nothing, as docs/trust/limits.md lists them."""

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from string import ascii_letters

import pytest

from sapo_node.tasks import build_task, score
from sapo_protocol import load_manifest

NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def exact(expression):
    """The value of an expression of numbers, signs and brackets."""
    return eval(NUMBER.sub(r"Fraction('\g<0>')", expression), {"Fraction": Fraction})


def rounded_once(prompt):
    """The exact result, rounded as the prompt asks."""
    value = exact(prompt.split("\n")[1].removesuffix(" = ?"))
    with_many_digits = Context(prec=80).divide(Decimal(value.numerator), Decimal(value.denominator))
    (digits,) = re.findall(r"maximum of ([0-9]+) significant", prompt)
    return format(Context(prec=int(digits), rounding=ROUND_HALF_UP).plus(with_many_digits), "f")


def quotient(prompt):
    """The exact result, a fraction where the division leaves a rest."""
    return str(exact(prompt.removesuffix(" Each quotient is floored.").lstrip(ascii_letters + ": ").rstrip("=.? ")))


def simplest(prompt):
    """The fraction in lowest terms, as people write it: a whole number has no denominator."""
    numerator, denominator = map(int, NUMBER.findall(prompt)[:2])
    return str(Fraction(numerator, denominator))


@pytest.mark.parametrize(
    ("swarm", "dataset", "answer", "refused", "items"),
    [
        pytest.param("paper-nine", "decimal_arithmetic", rounded_once, 129, 3_000, marks=pytest.mark.slow),
        pytest.param("paper-nine", "basic_arithmetic", quotient, 22, 3_000, marks=pytest.mark.slow),
        pytest.param("paper-nine", "fraction_simplification", simplest, 0, 2_000, marks=pytest.mark.slow),
        ("starter", "fraction_simplification", simplest, 0, 2_000),
        pytest.param("smollm2-easy", "fraction_simplification", simplest, 0, 2_000, marks=pytest.mark.slow),
    ],
)
def test_as_many_correct_answers_earn_nothing_as_the_page_says(swarm, dataset, answer, refused, items):
    (config,) = (spec.config for spec in load_manifest(swarm).tasks if spec.dataset == dataset)
    tasks = [build_task(dataset, config, seed) for seed in range(items)]
    assert sum(not score(task, f"<answer>{answer(task.prompt)}</answer>") for task in tasks) == refused
