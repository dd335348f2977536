"""Rows of a file: their form, the split, the row that a seed draws, and the answers that are correct."""

import json
from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from row_parts import quiz, sums
from sapo_node.tasks import score, task_digest, worked_example
from sapo_node.tasks.rows import (
    MAX_LINE,
    MAX_REFERENCE,
    MAX_TEXT,
    Row,
    RowError,
    normal_line,
    normal_row,
    parse_row,
    split_mark,
    task_of,
)
from sapo_node.tasks.rows import split as split_of
from sapo_node.tasks.task import FIRST_EXAMPLE_SEED, Task, TaskError
from sapo_protocol import ASSIGNED_SEEDS, AnswerKind
from sapo_protocol.limits import MIN_FILE_ROWS

FILE = "ab" * 32
SEEDS = st.integers(0, 2**32 - 1)


def split(rows):
    return split_of([split_mark(row["prompt"]) for row in rows])


def row_of(value):
    return parse_row(json.dumps(value).encode())


def numbered(answer):
    return Task("boxes", "How many?", answer, answers=AnswerKind.NUMBER)


def earns(task, answer):
    return bool(score(task, f"<answer>{answer}</answer>"))


def test_a_row_loses_the_blanks_at_its_ends_and_its_other_keys():
    assert row_of({"prompt": " a\r\nb \n", "answer": " 7\n", "source": "x"}) == Row("a\nb", "7")


@pytest.mark.parametrize("answer", ["b", "B", " b ", 1, "London"])
def test_a_choice_is_named_by_its_letter_its_index_or_its_text(answer):
    assert row_of({"prompt": "p", "choices": ["Paris", "London"], "answer": answer}).answer == "B"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "not an object"),
        ({"answer": "1"}, "prompt is not text"),
        ({"prompt": "p"}, "answer is not text"),
        ({"prompt": "p", "answer": 7}, "answer is not text"),
        ({"prompt": " \n", "answer": "1"}, "prompt is empty"),
        ({"prompt": "p", "answer": ""}, "answer is empty"),
        ({"prompt": "p\0", "answer": "1"}, "prompt has a control"),
        ({"prompt": "p", "answer": "\ud800"}, "answer has a control"),
        ({"prompt": "p" * (MAX_TEXT + 1), "answer": "1"}, "prompt has more than"),
        ({"prompt": "p", "answer": "1" * (MAX_REFERENCE + 1)}, "answer has more than"),
        ({"prompt": "p", "choices": "ab", "answer": "a"}, "not a list"),
        ({"prompt": "p", "choices": ["a"], "answer": "a"}, "1 choices"),
        ({"prompt": "p", "choices": ["a", "A"], "answer": 0}, "the same"),
        ({"prompt": "p", "choices": ["a", ""], "answer": 0}, "choice is empty"),
        ({"prompt": "p", "choices": ["yes", "no"], "answer": "C"}, "none of its choices"),
        ({"prompt": "p", "choices": ["yes", "no"], "answer": 2}, "none of its choices"),
        ({"prompt": "p", "choices": ["yes", "no"], "answer": True}, "none of its choices"),
        ({"prompt": "p", "choices": list("abcdefghi"), "answer": "\u0131"}, "none of its choices"),
        ({"prompt": "p", "choices": ["yes", "no"], "answer": ""}, "none of its choices"),
    ],
)
def test_a_row_with_one_fault_is_refused(value, why):
    with pytest.raises(RowError, match=why):
        row_of(value)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"\xff", b"[" * 100_000, b" " * (MAX_LINE + 1)])
def test_a_line_that_is_no_json_is_refused(line):
    with pytest.raises(RowError):
        parse_row(line)


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(TEXTS, TEXTS, st.none() | st.lists(TEXTS, min_size=2, max_size=4))
def test_a_normal_line_is_read_back_and_is_normal(prompt, answer, choices):
    value = {"prompt": prompt, "answer": choices[0] if choices else answer, "choices": choices}
    try:
        row = row_of(value)
    except RowError:
        return
    line = normal_line(row)
    assert normal_row(line) == row


@pytest.mark.parametrize(
    "line",
    [
        b'{"answer": "7","prompt":"p"}\n',
        b'{"prompt":"p","answer":"7"}\n',
        b'{"answer":"7","prompt":"p","x":1}\n',
        b'{"answer":"7","answer":"8","prompt":"p"}\n',
        b'{"answer":"7","prompt":" p"}\n',
        b'{"answer":"7","prompt":"\\u0070"}\n',
        b'{"answer":"7","prompt":"a\\r\\nb"}\n',
        b'{"answer":"7","choices":null,"prompt":"p"}\n',
        b'{"answer":"a","choices":["x","y"],"prompt":"p"}\n',
        b'{"answer":0,"choices":["x","y"],"prompt":"p"}\n',
        b'{"answer":"7","prompt":"p"}\r\n',
        b'{"answer":"7","prompt":"p"}',
    ],
)
def test_another_form_of_a_row_is_one_for_operators_alone(line):
    parse_row(line)
    with pytest.raises(RowError, match="not in the normal form"):
        normal_row(line)


@pytest.mark.parametrize("count", [MIN_FILE_ROWS, 33, 100, 2_000])
def test_every_row_is_assigned_held_out_or_an_example_and_only_one_of_these(count):
    found = split(sums(count))
    assert sorted([*found.assigned, *found.held_out, *found.examples]) == list(range(count))
    assert found.held_out
    assert found.examples


def test_about_one_row_of_sixteen_is_not_assigned():
    found = split(sums(4_000))
    assert 3_700 < len(found.assigned) < 3_800


@given(st.lists(st.integers(0, 2**64 - 1), min_size=MIN_FILE_ROWS, max_size=80, unique=True))
def test_a_small_file_has_rows_of_each_kind_whatever_its_prompts(marks):
    found = split_of(marks)
    assert all((found.assigned, found.held_out, found.examples))
    assert sorted([*found.assigned, *found.held_out, *found.examples]) == list(range(len(marks)))


@pytest.mark.parametrize("marks", [range(16, 16 * 33, 16), [64] * 32, [16] * 31 + [1], [64] * 31 + [1]])
def test_a_file_whose_prompts_give_no_row_to_a_kind_is_refused(marks):
    with pytest.raises(TaskError, match="give no row to one of"):
        split_of(marks)


def test_a_held_out_row_stays_held_out_when_the_file_gets_more_rows():
    rows = sums(2_000)
    small, large = split(rows[:1_000]), split(rows)
    assert set(small.held_out) == {number for number in large.held_out if number < 1_000}


@given(SEEDS)
def test_a_seed_draws_a_row_of_its_kind(seed):
    found = split(sums(200))
    kind = found.assigned if seed < ASSIGNED_SEEDS else found.held_out
    if seed >= FIRST_EXAMPLE_SEED:
        kind = found.examples
    assert found.draw(FILE, seed) in kind


def test_seeds_draw_rows_evenly():
    found = split(sums(100))
    drawn = Counter(found.draw(FILE, seed) for seed in range(10_000))
    assert set(drawn) == set(found.assigned)
    assert max(drawn.values()) < 2 * min(drawn.values())


def test_another_file_of_the_same_prompts_is_drawn_otherwise():
    found = split(sums(100))
    one, other = ([found.draw(file, seed) for seed in range(100)] for file in (FILE, "cd" * 32))
    assert one != other


def test_the_draw_and_the_split_are_those_of_the_first_version():
    """A change of either breaks every swarm with a file."""
    found = split(sums(100))
    assert [found.draw(FILE, seed) for seed in (0, 1, ASSIGNED_SEEDS, FIRST_EXAMPLE_SEED)] == PINNED_DRAW
    assert (list(found.held_out), list(found.examples)) == PINNED_SPLIT


PINNED_DRAW = [72, 28, 49, 41]
PINNED_SPLIT = ([24, 40, 49, 77], [0, 17, 41, 69, 84, 89])


@pytest.mark.parametrize(
    "answer", ["72", "+72", "072", "72.0", "72.00", "144/2", "+ 144/02", " 72 ", "$72", "**72**", "72."]
)
def test_a_number_is_correct_by_its_value(answer):
    assert earns(numbered("72"), answer)


@pytest.mark.parametrize(
    "answer",
    [
        "-72",
        "71.9",
        "7 2",
        "72 or 73",
        "72/0",
        "/1",
        ".",
        "$",
        "seventy-two",
        "7.2e1",
        "",
        "1/2/3",
        "144./2",
        "144/+2",
        "144/2.0",
        "144 / 2",
        "$$72",
    ],
)
def test_another_text_is_no_correct_number(answer):
    assert not earns(numbered("72"), answer)


@pytest.mark.parametrize(
    ("one", "other"), [("1500", "1,500"), ("0.5", ".5"), ("1/2", "0.50"), ("-3", "\u22123"), ("-1,000/2", "\u2212500")]
)
def test_long_and_short_forms_of_a_number_are_equal_by_value(one, other):
    assert earns(numbered(one), other)


@given(st.fractions(), st.fractions())
def test_fractions_are_equal_by_value(one, other):
    assert earns(numbered(f"{one.numerator}/{one.denominator}"), f"{2 * one.numerator}/{2 * one.denominator}")
    assert earns(numbered(str(one)), str(other)) == (one == other)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000))
def test_decimals_are_equal_to_their_fractions(value):
    exact = Fraction(value)
    assert earns(numbered(f"{value:f}"), f"{exact.numerator}/{exact.denominator}")


@given(st.text(max_size=60), st.sampled_from(AnswerKind))
def test_no_answer_makes_a_scorer_raise(answer, kind):
    task = Task("boxes", "?", "A", {"choices": ["yes", "no"]}, kind)
    assert score(task, f"<answer>{answer}</answer>") in {0, 1}


@pytest.mark.parametrize(
    "answer", ["B", "b", "(b)", "B.", "b)", "London", "LONDON", "B. London", "b) london", "(B) London", "(b: LONDON"]
)
def test_a_choice_is_correct_by_its_letter_or_its_text(answer):
    assert earns(Task("cities", "?", "B", {"choices": ["Paris", "London"]}, AnswerKind.CHOICE), answer)


@pytest.mark.parametrize(
    "answer",
    [
        "A",
        "Paris",
        "A. London",
        "B. Paris",
        "AB",
        "A or B",
        "C",
        "",
        "Paris London",
        "B London",
        "B.London",
        "(B)  London",
    ],
)
def test_another_choice_or_two_of_them_are_incorrect(answer):
    assert not earns(Task("cities", "?", "B", {"choices": ["Paris", "London"]}, AnswerKind.CHOICE), answer)


def test_a_long_choice_may_be_named_by_its_text():
    task = Task("cities", "?", "A", {"choices": ["x" * 100, "y"]}, AnswerKind.CHOICE)
    assert earns(task, f"A. {'x' * 100}")
    assert not earns(task, '"' + " " * 400 + "x" * 100 + '"')


def test_a_letter_that_is_the_text_of_another_choice_counts_as_the_letter():
    task = Task("letters", "?", "A", {"choices": ["B", "A"]}, AnswerKind.CHOICE)
    assert earns(task, "A")
    assert not earns(task, "B")


def test_a_letter_beyond_the_choices_is_a_text():
    task = Task("letters", "?", "A", {"choices": ["x", "y"]}, AnswerKind.CHOICE)
    assert earns(task, "X")
    assert not earns(task, "Y")


def test_a_choice_that_begins_like_another_one_with_its_letter_is_correct_as_it_stands():
    task = Task("names", "?", "B", {"choices": ["Jones", "A. Smith"]}, AnswerKind.CHOICE)
    assert earns(task, "a. smith")
    assert not earns(task, "A. Jones")


def test_assigned_seeds_shuffle_the_choices_and_the_letter_follows():
    row = row_of(quiz(1)[0])
    tasks = [task_of("quiz", row, AnswerKind.CHOICE, seed) for seed in range(200)]
    assert {tuple(task.metadata["choices"]) for task in tasks} == set(permutations(row.choices))
    for task in tasks:
        assert f"\n{task.answer}. 0" in task.prompt
        assert earns(task, "0")


def test_a_held_out_row_has_one_prompt():
    row = row_of(quiz(1)[0])
    assert len({task_of("quiz", row, AnswerKind.CHOICE, ASSIGNED_SEEDS + seed).prompt for seed in range(50)}) == 1


def test_the_digest_of_a_row_covers_its_prompt_and_its_answer():
    task = task_of("boxes", Row("p", "7"), AnswerKind.NUMBER, 1)
    assert task_digest(task.prompt, task.answer) == task_digest("p", "7")


@pytest.mark.parametrize("name", ["products", "evil.escape", "boxes"])
def test_the_worked_example_of_a_row_is_its_reference_whatever_the_task_is_called(name):
    assert worked_example(task_of(name, Row("8 * 2", "16"), AnswerKind.NUMBER, 1)) == "<answer>16</answer>"
