# ruff: noqa: RUF001 - look-alike digits and signs on purpose
"""Every scorer of a puzzle accepts the reference, refuses hostile text, and decides on any text."""

import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puzzles import CHECKED
from sapo_node.tasks.score import MAX_ANSWER
from sapo_node.tasks.task import Task, Verdict

HOSTILE = {
    "nothing": "",
    "blanks": " \n ",
    "zero": "0",
    "one": "1",
    "a digit of another script": "１ ２ ٣",
    "an integer of a thousand digits": "9" * 1_000,
    "an integer of 4,096 digits": "9" * MAX_ANSWER,
    "a decimal of 4,096 digits": "." + "9" * (MAX_ANSWER - 1),
    "a power of powers": "9**9**9**9",
    "a tower": "9^" * 2_000 + "9",
    "a factorial": "factorial(10**7)",
    "an exponent": "1e9999999",
    "a negative exponent": "1e-9999999",
    "not a number": "nan",
    "an infinity": "Infinity",
    "a division by zero": "1/0",
    "a LaTeX division by zero": "\\frac{1}{0}",
    "a nested LaTeX fraction": "\\frac{" * 600,
    "a call": "__import__('os').system('true')",
    "a comprehension": "[c for c in ().__class__.__base__.__subclasses__()]",
    "a lambda": "(lambda: exit())()",
    "an f-string": "f'{open(0)}'",
    "true": "true",
    "none": "None",
    "an empty list": "[]",
    "an empty map": "{}",
    "a list of empty lists": "[[], []]",
    "a list of nulls": "[null, null]",
    "deep brackets": "[" * 2_048 + "]" * 2_048,
    "open brackets": "[" * MAX_ANSWER,
    "closed brackets": "]" * MAX_ANSWER,
    "deep parentheses": "(" * 2_048 + ")" * 2_048,
    "open parentheses": "(" * MAX_ANSWER,
    "deep braces": '{"0":' * 800,
    "only commas": "," * MAX_ANSWER,
    "only quotes": '"' * MAX_ANSWER,
    "only minus signs": "-" * MAX_ANSWER,
    "minus signs and a number": "-" * (MAX_ANSWER - 1) + "7",
    "only plus signs": "+" * MAX_ANSWER,
    "only stars": "*" * MAX_ANSWER,
    "only slashes": "/" * MAX_ANSWER,
    "only blanks inside": "1" + " " * (MAX_ANSWER - 2) + "2",
    "only line breaks": "1" + "\n" * (MAX_ANSWER - 2) + "2",
    "only underscores": "_ " * 2_048,
    "one letter often": "x" * MAX_ANSWER,
    "one term often": "x+" * 2_048,
    "different terms": "+".join(f"x^{power}" for power in range(700)),
    "numbers in a list": ", ".join(map(str, range(700))),
    "list numbers": "1." * 2_048,
    "pairs": ",".join(f"{vertex}:1" for vertex in range(600)),
    "letters": "ABC" * 1_365,
    "presses that are not active": "B" * MAX_ANSWER,
    "moves in a corner": "UL" * 2_048,
    "moves to and fro": "DU" * 2_048,
    "steps to and fro": "right left " * 372,
    "disks": "Move disk 1 from Peg 1 to Peg 1\n" * 128,
    "fills": "fill A, " * 512,
    "pours": "pour A->A " * 400,
    "people": "Zoey is a hero, " * 256,
    "a contradiction": "Zoey is a hero, Zoey is a villain, Aria is a hero, Aria is a villain",
    "words": "tea " * 1_024,
    "infeasible": "infeasible",
    "the prompt": "Solve it.",
    "equals signs": "=" * MAX_ANSWER,
    "degrees": "°" * MAX_ANSWER,
    "degrees in LaTeX": "^{\\circ}" * 512,
    "a surrogate": "\ud800",
    "a zero byte": "\0",
}


@pytest.mark.parametrize("name", CHECKED)
def test_the_reference_is_correct(name: str) -> None:
    check, task = CHECKED[name]
    assert check(task, task.answer) == 1


@pytest.mark.parametrize("name", CHECKED)
def test_hostile_text_earns_nothing(name: str) -> None:
    check, task = CHECKED[name]
    assert not [key for key, text in HOSTILE.items() if check(task, text)]


@pytest.mark.parametrize("name", CHECKED)
def test_two_references_in_a_row_are_no_answer(name: str) -> None:
    check, task = CHECKED[name]
    assert not check(task, f"{task.answer}\n{task.answer}")


@pytest.mark.parametrize("name", CHECKED)
def test_a_word_behind_the_reference_refuses_it(name: str) -> None:
    check, task = CHECKED[name]
    assert not check(task, f"{task.answer} perhaps")


@pytest.mark.parametrize("name", CHECKED)
def test_every_hostile_text_is_checked_within_20_ms(name: str) -> None:
    check, task = CHECKED[name]
    for key, text in HOSTILE.items():
        # A second try tells a slow scorer from a busy machine.
        assert any(_seconds(check, task, text) < 0.02 for _ in range(3)), key


def _seconds(check: Callable[[Task, str], Verdict], task: Task, text: str) -> float:
    begin = time.process_time()
    check(task, text)
    return time.process_time() - begin


WORDS = ("->", "**", "\\frac{1}{2}", "disk ", "peg ", "fill ", "pour ", "from ", "to ", "up", "left", " is a ", "hero")
PIECES = st.sampled_from(
    [*'0123456789ABCDUXRLxyiC_Q*+-/^()[]{},.:;=<>°→∧ \n"é٣', *WORDS, "Zoey", "and ", "days", "tea"]
)


@given(text=st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=60).map("".join)))
def test_every_text_gets_a_verdict_from_0_to_1(text: str) -> None:
    for check, task in CHECKED.values():
        verdict = check(task, text)
        assert isinstance(verdict, bool | Fraction)
        assert 0 <= verdict <= 1


@given(place=st.integers(0, 200), piece=PIECES)
def test_a_reference_with_one_character_changed_gets_a_verdict(place: int, piece: str) -> None:
    for check, task in CHECKED.values():
        start = place % len(task.answer)
        assert 0 <= check(task, task.answer[:start] + piece + task.answer[start + 1 :]) <= 1
