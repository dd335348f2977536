"""Scorers of lists, grids, words and exact numbers: generous with forms, strict with values."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.tasks import Task
from sapo_node.tasks.scorers.lists import (
    has_first_numbers,
    has_first_words,
    is_list_of_numbers,
    is_list_of_signs,
    is_list_of_words,
)
from sapo_node.tasks.scorers.matrices import has_rows, is_grid_of_decimals, is_grid_of_signs
from sapo_node.tasks.scorers.numbers import (
    has_prime_factors,
    is_angle,
    is_hexadecimal,
    is_nearest_thousandth,
    is_probability_of_heads,
    is_value_of_variable,
)
from sapo_node.tasks.scorers.words import has_words, has_words_in_any_case, is_palindrome, is_relation


def task(answer: str, prompt: str = "") -> Task:
    return Task("any", prompt, answer)


@pytest.mark.parametrize(
    "answer", ["1 2 -3.5", "[1, 2, -3.5]", "['1', '2.0', '-3.50']", "1\n2\n-3.5", "1, 2, and −3.5", "1 -> 2 -> -3.5"]
)
def test_a_list_of_the_same_numbers_is_correct(answer: str) -> None:
    assert is_list_of_numbers(task("['1', '2', '-3.5']"), answer)


@pytest.mark.parametrize(
    "answer", ["1 2", "1 2 -3.5 4", "2 1 -3.5", "1 2 3.5", "[1, 2, -3.5", "1 2 -3.5 x", "1 2 nan", "[]", ",", "and"]
)
def test_a_list_of_other_numbers_is_incorrect(answer: str) -> None:
    assert not is_list_of_numbers(task("['1', '2', '-3.5']"), answer)


@pytest.mark.parametrize(("answer", "right"), [("[]", True), (",", False), ("and", False), ("0", False)])
def test_only_an_empty_list_is_an_empty_list(answer: str, right) -> None:
    assert is_list_of_numbers(task("[]"), answer) is right


@pytest.mark.parametrize(
    ("answer", "share"),
    [("1 2 3 4", 1), ("1 2 4 3", Fraction(1, 2)), ("2 1 3 4", 0), ("1 2 3 4 5", Fraction(4, 5)), ("1", Fraction(1, 4))],
)
def test_a_sorted_list_earns_the_share_before_its_first_error(answer: str, share: Fraction) -> None:
    assert has_first_numbers(task("1 2 3 4"), answer) == share


@pytest.mark.parametrize(
    "answer", ["b, and, a", "[b, and, a]", "'b', 'and', 'a'", "b and a", "b\nand\na", "b, and, and a"]
)
def test_a_list_of_the_same_words_is_correct(answer: str) -> None:
    assert is_list_of_words(task("b, and, a"), answer)


@pytest.mark.parametrize("answer", ["b, a", "a, and, b", "B, and, a", "b, and, a, a", "b, and a, x", "b; and; 'a"])
def test_a_list_of_other_words_is_incorrect(answer: str) -> None:
    assert not is_list_of_words(task("b, and, a"), answer)


def test_a_list_of_words_earns_the_share_before_its_first_error() -> None:
    assert has_first_words(task("a, b, c, d"), "a, b, d, c") == Fraction(1, 2)


def test_signs_are_compared_without_what_separates_them() -> None:
    assert is_list_of_signs(task("A# #B"), "[A#, #B]")
    assert not is_list_of_signs(task("A# #B"), "#A B#")


HEADS = "What is the probability of getting at least 9 heads in 10 fair coin flips?"  # 11/1024 = 0.0107421875


@pytest.mark.parametrize(
    "answer", ["11/1024", "22/2048", "\\frac{11}{1024}", "0.0107421875", "0.01074", ".01074", "1.0742e-2", "1.0742%"]
)
def test_a_probability_is_correct_as_a_fraction_or_a_decimal_near_it(answer: str) -> None:
    assert is_probability_of_heads(task("0.0107421875", HEADS), answer)


@pytest.mark.parametrize(
    "answer",
    ["10/1024", "1/93", "0/0", "0", "1", "0.0107", "0.01075", "1.0742", "-0.01074", "1e99", "nan", "11/1024/1"],
)
def test_another_probability_is_incorrect(answer: str) -> None:
    assert not is_probability_of_heads(task("0.0107421875", HEADS), answer)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("0x1F", True),
        ("1f", True),
        ("+0x1f", True),
        ("31", False),
        ("-0x1f", False),
        ("0x1g", False),
        ("0x 1f", False),
        ("0x", False),
    ],
)
def test_a_hexadecimal_number_is_compared_by_value(answer: str, right) -> None:
    assert is_hexadecimal(task("0x1f"), answer) is right


def test_a_negative_hexadecimal_number_may_have_the_sign_of_mathematics() -> None:
    assert is_hexadecimal(task("-0x1f"), "−0x1f")


@pytest.mark.parametrize(
    "answer", ["2 × 2 × 3", "3*2*2", "2^2 * 3", "2² × 3", "2^{2} \\cdot 3", "[2, 2, 3]", "12 = 2 × 2 × 3", "2**2 * 3"]
)
def test_the_same_prime_factors_are_correct(answer: str) -> None:
    assert has_prime_factors(task("2 × 2 × 3"), answer)


@pytest.mark.parametrize(
    "answer",
    ["12", "4 × 3", "2 × 3", "2 × 6", "1 × 2 × 2 × 3", "2^0 × 2 × 3", "13 = 2 × 2 × 3", "12 =", "2 × 2 × 3 ×", "2^99"],
)
def test_other_factors_are_incorrect(answer: str) -> None:
    assert not has_prime_factors(task("2 × 2 × 3"), answer)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("1,234.500", True),
        ("1234.5", True),
        ("1.2345e3", True),
        ("1,23,4.5", False),
        ("1234.501", False),
        ("12345e9999", False),
    ],
)
def test_a_candidate_is_compared_to_three_decimals(answer: str, right) -> None:
    assert is_nearest_thousandth(task("1234.4999999999"), answer) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("148", True),
        ("148.0°", True),
        ("148 degrees", True),
        ("148^\\circ", True),
        ("149", False),
        ("1,48", False),
        ("14800%", False),
        ("degrees", False),
    ],
)
def test_an_angle_may_have_its_unit(answer: str, right) -> None:
    assert is_angle(task("148"), answer) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("5", True),
        ("y = 5", True),
        ("y=5.0", True),
        ("x = 5", False),
        ("y = 6", False),
        ("y = x = 5", False),
        ("y =", False),
    ],
)
def test_a_solution_may_name_the_variable_of_the_prompt(answer: str, right) -> None:
    assert is_value_of_variable(task("5", "Solve for y: 3*y + 1 = 16"), answer) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [("abba", True), ("baab", True), ("A b-b a", True), ("aabb", False), ("aba", False), ("abbba", False), ("", False)],
)
def test_a_palindrome_uses_all_letters(answer: str, right) -> None:
    assert is_palindrome(task("abba"), answer) is right


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("mother", "Mother", True),
        ("mother", "father", False),
        ("mother-in-law", "mother in law", True),
        ("mother-in-law", "daughter-in-law", True),
        ("mother-in-law", "Son-in-law", True),
        ("mother-in-law", "father-in-law", False),
        ("mother", "son-in-law", False),
    ],
)
def test_a_relation_by_marriage_may_be_told_from_either_side(reference: str, answer: str, right) -> None:
    assert is_relation(task(reference), answer) is right


def test_words_earn_the_share_that_stands_in_its_place() -> None:
    assert has_words(task("The cat is Here"), "The dog is Here") == Fraction(3, 4)
    assert has_words(task("The cat"), "the cat") == Fraction(1, 2)
    assert has_words_in_any_case(task("THE CAT"), "the cat") == 1
    assert has_words(task("The cat"), "The cat The cat") == Fraction(1, 2)


@pytest.mark.parametrize(
    "answer", ["1 2.0\n3 4", "[[1, 2], [3, 4.00]]", "[1 2]\n[3 4]", "1, 2\n3, 4", "[[1 2]\n [3 4]]"]
)
def test_a_grid_with_the_same_numbers_earns_all_of_it(answer: str) -> None:
    assert has_rows(task("1 2\n3 4"), answer) == 1


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("1 2\n3 5", Fraction(1, 2)),
        ("1 2", Fraction(1, 2)),
        ("3 4\n1 2", 0),
        ("1 2\n3 4\n5 6\n7 8", Fraction(1, 2)),
        ("[[1 2", 0),
        ("1 2\n3 x", 0),
        ("[]", 0),
        ("1 2 3 4", 0),
    ],
)
def test_a_grid_earns_the_share_of_its_right_rows(answer: str, share: Fraction) -> None:
    assert has_rows(task("1 2\n3 4"), answer) == share


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("3 5.22", True),
        ("[[3, 5.2222]]", True),
        ("3 5.23", False),
        ("3\n5.22", False),
        ("3 5.2", False),
        ("3", False),
        ("", False),
    ],
)
def test_a_cell_may_have_more_decimals_than_asked_for(answer: str, right) -> None:
    assert is_grid_of_decimals(task("3.0 5.22"), answer) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("✅❌\n❌✅", True),
        ("✅ ❌\n❌ ✅", True),
        ("[✅, ❌]\n[❌, ✅]", True),
        ("✅❌❌✅", False),
        ("✅❌\n❌❔", False),
    ],
)
def test_a_grid_of_signs_keeps_its_rows(answer: str, right) -> None:
    assert is_grid_of_signs(task("✅❌\n❌✅"), answer) is right


ALL = (
    *(
        has_first_numbers,
        has_first_words,
        has_prime_factors,
        has_rows,
        has_words,
        has_words_in_any_case,
        is_angle,
        is_grid_of_decimals,
    ),
    *(
        is_grid_of_signs,
        is_hexadecimal,
        is_list_of_numbers,
        is_list_of_signs,
        is_list_of_words,
        is_nearest_thousandth,
        is_palindrome,
    ),
    *(is_probability_of_heads, is_relation, is_value_of_variable),
)
pieces = st.sampled_from(
    [*"[](){}'\",;=^*/.-+%° \n19eExX", "−", "²", "×", "✅", "and", "0x", "\\frac{", "\\circ", "→", "->", "1e99"]
)


@given(st.sampled_from(ALL), st.lists(pieces | st.text(max_size=3), max_size=30).map("".join))
def test_every_answer_has_a_verdict_from_none_to_all(scorer, answer: str) -> None:
    assert 0 <= scorer(task("12", HEADS), answer) <= 1
