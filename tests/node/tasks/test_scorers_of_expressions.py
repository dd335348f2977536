"""Expressions, complex numbers, coordinates and durations are compared by their exact value."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puzzles import ANGLE, COMPLEX, COUNTDOWN, DURATION, INTEGRAL, ORTHOCENTER, PRODUCT, puzzle
from sapo_node.tasks.scorers.durations import is_duration
from sapo_node.tasks.scorers.expressions import (
    is_antiderivative,
    is_countdown,
    is_product,
    share_of_complex,
    share_of_geometry,
)
from sapo_node.tasks.scorers.notation import rational


@pytest.mark.parametrize(
    "answer",
    ["7 + 7 + 3*2", "(7+7)+(3*2)", "7 − -7 + 2×3", "3·2+7+7 = 20", "7 + 7 + 3\\times 2", "-(-7) + 7 + 2*3", "7--7+2*3"],
)
def test_every_expression_of_the_target_is_correct(answer: str) -> None:
    assert is_countdown(COUNTDOWN, answer)


def test_division_is_exact() -> None:
    assert is_countdown(puzzle("", numbers=[3, 3, 8, 8], target=24), "8/(3 - 8/3)")


@pytest.mark.parametrize(
    "answer",
    [
        "2*3 + 7 + 8",
        "2*3 + 7",
        "2*3 + 7 + 7 + 0",
        "2*3 + 7 + 7 - 7 + 7",
        "20",
        "20 = 2*3 + 7 + 7",
        "2*3 + 7 + 7 = 21",
        "2**3 + 7 + 7",
        "2*3 + 7 + 7)",
        "(2*3 + 7 + 7",
        "2 3 + 7 + 7",
        "2*3 + 77/1",
        "7 + 7 + 3 2 *",
        "7 + 7 3*2",
        "2*3 + 7 + 7 +",
        "*2*3 + 7 + 7",
        "2*3 // 7 + 7 + 7",
        "7 - 7 + 2*3",
        "2/(7 - 7) + 3",
        "max(2*3 + 7 + 7, 0)",
        "2*3.0 + 7 + 7",
    ],
)
def test_an_expression_that_breaks_one_rule_is_incorrect(answer: str) -> None:
    assert not is_countdown(COUNTDOWN, answer)


def test_a_blank_inside_a_number_refuses_an_expression() -> None:
    task = puzzle("", numbers=[12, 8], target=20)
    assert is_countdown(task, "12 + 8")
    assert not is_countdown(task, "1 2 + 8")


def test_the_numbers_of_a_sum_may_stand_in_any_order() -> None:
    task = puzzle("", numbers=[3, 41, 7, 60], target=111)
    assert all(is_countdown(task, " + ".join(order)) for order in itertools.permutations(["3", "41", "7", "60"]))


EXPRESSIONS = st.recursive(
    st.integers(0, 9).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({parts[0]}{parts[1]}{parts[2]})"),
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"{parts[0]} {parts[1]} {parts[2]}"),
        inner.map(lambda text: f"-{text}"),
    ),
    max_leaves=8,
)


@given(expression=EXPRESSIONS)
def test_an_expression_has_the_value_that_python_gives_it(expression: str) -> None:
    numbers = [int(character) for character in expression if character.isdigit()]
    exact = "".join(f"Fraction({character})" if character.isdigit() else character for character in expression)
    try:
        value = eval(exact, {"Fraction": Fraction})
    except ZeroDivisionError:
        assert not is_countdown(puzzle("", numbers=numbers, target=0), expression)
    else:
        assert is_countdown(puzzle("", numbers=numbers, target=value), expression)
        assert not is_countdown(puzzle("", numbers=numbers, target=value + 1), expression)


@pytest.mark.parametrize(
    "answer",
    [
        "6*x^2 - 5*x - 6",
        "6x^2-5x-6",
        "-6 - 5x + 6x**2",
        "6 x^{2} - 5 x - 6",
        "6·x^2 − 5·x − 6",
        "6\\cdot x^2 - 5x - 6",
        "+6x^2-5x^1-6x^0",
    ],
)
def test_a_product_is_correct_in_other_forms(answer: str) -> None:
    assert is_product(PRODUCT, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "6*x**2 - 5*x + 6",
        "6*x**2 - 6",
        "6*y**2 - 5*y - 6",
        "(2*x - 3)*(3*x + 2)",
        "6*x**2 - 9*x + 4*x - 6",
        "6*x*x - 5*x - 6",
        "2*3*x**2 - 5*x - 6",
        "6*x**2 - 5*x - 6 + 0*x",
        "6*x**2 - 5*x - 6 = 0",
        "6*x**2 - 5*x* - 6",
        "6*x**2 - 5* - 6",
        "6*x**2 -- 5*x - 6",
        "6*x**2 5*x 6",
        "6*x**-2 - 5*x - 6",
    ],
)
def test_a_product_of_another_value_or_not_expanded_is_incorrect(answer: str) -> None:
    assert not is_product(PRODUCT, answer)


@given(
    coefficients=st.dictionaries(st.integers(0, 9), st.integers(-999, 999).filter(bool), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_a_polynomial_equals_itself_in_any_order(coefficients: dict[int, int], order) -> None:  # type: ignore[no-untyped-def]
    terms = [f"{number:+d}*x**{power}" for power, number in coefficients.items()]
    reference = "".join(terms)
    order.shuffle(terms)
    assert is_product(puzzle(reference), " ".join(terms))
    power, number = next(iter(coefficients.items()))
    assert not is_product(
        puzzle(reference), reference.replace(f"{number:+d}*x**{power}", f"{number + 1:+d}*x**{power}", 1)
    )


@pytest.mark.parametrize(
    "answer",
    [
        "2*x**3 - x**2/2 + 7*x/3 + C",
        "2X^3 - 1/2*X^2 + 7/3*X",
        "2X^3 - (1/2)X^2 + (7/3)X + c",
        "2x^3 - \\frac{1}{2}x^2 + \\frac{7}{3}x + C",
        "C + 7*X/3 - 0.5*X**2 + 2*X**3",
        "2*X**3 - X**2/2 + 7*X/3 + 5",
    ],
)
def test_an_antiderivative_is_correct_in_other_forms_and_with_any_constant(answer: str) -> None:
    assert is_antiderivative(INTEGRAL, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "6*X**2 - X + 7/3",
        "2*X**3 - X**2/2 + 7*X/3 + C*X",
        "2*X**3 - X**2/2 + 2.333*X + C",
        "2*X**3 - X**2/2 + C",
        "2*X**3 - X**2/0 + 7*X/3 + C",
        "2*X**3 - X**2/2 + 7*X/3 + C + C",
        "∫(6*X**2 - X + 7/3)dx",
    ],
)
def test_an_antiderivative_of_another_value_is_incorrect(answer: str) -> None:
    assert not is_antiderivative(INTEGRAL, answer)


@pytest.mark.parametrize("answer", ["3 - 2i", "-2i + 3", "3.00 − 2.00i", "(3 - 2i)", "3-2j", "3 - 2*i", "+3.0-2.0I"])
def test_a_complex_number_is_correct_in_other_forms(answer: str) -> None:
    assert share_of_complex(COMPLEX, answer) == 1


def test_a_missing_part_is_zero() -> None:
    assert share_of_complex(puzzle("5.00"), "5 + 0i") == 1
    assert share_of_complex(puzzle("-1.00i"), "-i") == 1


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("3", Fraction(1, 2)),
        ("-2i", Fraction(1, 2)),
        ("3 + 2i", Fraction(1, 2)),
        ("-3 + 2i", Fraction(0)),
        ("3.004 - 2.004i", Fraction(0)),
        ("3 - 2i or 0", Fraction(0)),
        ("3 + 3 - 2i", Fraction(0)),
        ("3 - 2i^2", Fraction(0)),
        ("3 - 2ii", Fraction(0)),
    ],
)
def test_each_part_of_a_complex_number_earns_a_half(answer: str, share: Fraction) -> None:
    assert share_of_complex(COMPLEX, answer) == share


@pytest.mark.parametrize(
    "answer",
    [
        "(13/7, -20/7)",
        "1.857, -2.857",
        "[1.857, -2.857]",
        "\\left(\\frac{13}{7}, -\\frac{20}{7}\\right)",
        "(1.85714, -2.85714)",
    ],
)
def test_coordinates_are_correct_in_other_forms(answer: str) -> None:
    assert share_of_geometry(ORTHOCENTER, answer) == 1


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("(1.857, 2.857)", Fraction(1, 2)),
        ("(1.858, -2.857)", Fraction(1, 2)),
        ("(1.86, -2.86)", Fraction(0)),
        ("(-2.857, 1.857)", Fraction(0)),
        ("1.857", Fraction(0)),
        ("(1.857, -2.857, 0)", Fraction(0)),
        ("(1.857, y)", Fraction(0)),
    ],
)
def test_each_coordinate_earns_a_half(answer: str, share: Fraction) -> None:
    assert share_of_geometry(ORTHOCENTER, answer) == share


@pytest.mark.parametrize("answer", ["45", "45.00", "45 degrees", "45^\\circ", "45^{\\circ}", "45.004°", "90/2", "+45."])
def test_an_angle_is_correct_in_other_forms(answer: str) -> None:
    assert share_of_geometry(ANGLE, answer) == 1


@pytest.mark.parametrize("answer", ["45.006", "44.99", "-45", "0.785", "45 rad", "45°, 45°", "4 5"])
def test_another_angle_earns_nothing(answer: str) -> None:
    assert share_of_geometry(ANGLE, answer) == 0


@given(numerator=st.integers(-(10**20), 10**20), denominator=st.integers(1, 10**9))
def test_a_fraction_has_its_value(numerator: int, denominator: int) -> None:
    assert rational(f"{numerator}/{denominator}") == Fraction(numerator, denominator)


@pytest.mark.parametrize(
    "answer",
    ["3 days, 04:05:00", "3 days 04:05", "3d 4h 5m", "3 days, 4 hours and 5 minutes", "76:05", "273900 seconds"],
)
def test_a_duration_is_correct_in_other_forms(answer: str) -> None:
    assert is_duration(DURATION, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "3 days, 04:06",
        "2 days, 04:05",
        "-3 days, 04:05",
        "3 days",
        "04:05",
        "3",
        "3 days, 04:05 or 04:06",
        ",",
        "days",
        "3 04:05",
    ],
)
def test_another_duration_is_incorrect(answer: str) -> None:
    assert not is_duration(DURATION, answer)


def test_a_bare_number_counts_days() -> None:
    assert is_duration(puzzle("99 days"), "99")
    assert is_duration(puzzle("1 days"), "1 day")


def test_a_minus_before_days_holds_for_the_days_alone() -> None:
    assert is_duration(puzzle("-1 days, 20:00"), "-04:00")
    assert is_duration(puzzle("-1 days, 20:00"), "-4 hours")
    assert not is_duration(puzzle("-1 days, 20:00"), "1 days, 20:00")
