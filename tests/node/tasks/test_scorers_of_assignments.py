"""Assignments are checked by the rules of their puzzles: colours, digits, people and groups of words."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import pytest

from puzzles import ANAGRAMS, COLORING, CRYPTARITHM, KNIGHTS
from sapo_node.tasks import build_task
from sapo_node.tasks.scorers.assignments import is_coloring, is_cryptarithm, is_knights_and_knaves, share_of_groups


@pytest.mark.parametrize(
    "answer",
    [
        '{"0": 3, "1": 2, "2": 1, "3": 2}',
        "{0: 1, 1: 2, 2: 3, 3: 2}",
        "0=1, 1=2, 2=3, 3=1",
        "0 -> 1\n1 -> 2\n2 -> 3\n3 -> 1",
        "3: 1, 2: 3, 1: 2, 0: 1",
        "{'0': '1', '1': '2', '2': '3', '3': '1'}",
    ],
)
def test_every_coloring_is_correct(answer: str) -> None:
    assert is_coloring(COLORING, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "0=1, 1=2, 2=3, 3=3",
        "0=1, 1=2, 2=3",
        "0=1, 1=2, 2=3, 3=1, 4=1",
        "0=1, 1=2, 2=3, 3=4",
        "0=1, 1=2, 2=3, 3=1, 3=2",
        "1, 2, 3, 1",
    ],
    ids=["neighbours", "a vertex missing", "no such vertex", "no such colour", "a vertex twice", "no vertices"],
)
def test_a_coloring_that_breaks_one_rule_is_incorrect(answer: str) -> None:
    assert not is_coloring(COLORING, answer)


@pytest.mark.parametrize("seed", range(3))
def test_a_coloring_with_its_colors_exchanged_is_correct(seed: int) -> None:
    task = build_task("graph_color", {}, seed)
    for order in itertools.permutations((1, 2, 3)):
        exchanged = {vertex: order[color - 1] for vertex, color in json.loads(task.answer).items()}
        assert is_coloring(task, json.dumps(exchanged))


@pytest.mark.parametrize(
    "answer", ["A=2,B=4,C=1,D=5", "A: 1\nB: 2\nC: 3\nD: 5", "{'A': 1, 'B': 2, 'C': 3, 'D': 5}", "D=5, c=3, b=2, a=1"]
)
def test_every_solution_of_a_cryptarithm_is_correct(answer: str) -> None:
    assert is_cryptarithm(CRYPTARITHM, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "A=1,B=2,C=3,D=4",
        "A=2,B=4,C=0,D=4",
        "A=1,B=2,C=3",
        "A=1,B=2,C=3,D=5,E=6",
        "A=1,B=2,C=3,D=5,D=5",
        "A=0,B=0,C=3,D=3",
        "A=1,B=2,C=3,D=05",
    ],
    ids=["the sum", "a digit twice", "a letter missing", "another letter", "a letter twice", "zeros", "two digits"],
)
def test_digits_that_break_one_rule_are_incorrect(answer: str) -> None:
    assert not is_cryptarithm(CRYPTARITHM, answer)


def test_a_word_may_begin_with_zero_only_where_the_puzzle_says_so() -> None:
    puzzle = dict(CRYPTARITHM.metadata, letters=["A", "B", "C"], words_letters=["AB", "C"], result_letters="AB")
    assert not is_cryptarithm(replace(CRYPTARITHM, metadata=puzzle), "A=1,B=2,C=0")
    assert is_cryptarithm(replace(CRYPTARITHM, metadata=puzzle | {"allow_leading_zero": True}), "A=1,B=2,C=0")


def test_another_solution_of_a_cryptarithm_is_correct() -> None:
    for seed in range(40):
        task = build_task("cryptarithm", {"max_words": 2}, seed)
        letters = sorted(task.metadata["letters"])
        digits = dict(pair.split("=") for pair in task.answer.split(","))
        for one, other in itertools.combinations(letters, 2):
            swapped = digits | {one: digits[other], other: digits[one]}
            answer = ",".join(f"{letter}={digit}" for letter, digit in swapped.items())
            assert is_cryptarithm(task, answer) == _adds_up(task.metadata, swapped)


def _adds_up(puzzle, digits: dict[str, str]) -> bool:  # type: ignore[no-untyped-def]
    numbers = [int("".join(digits[x] for x in word)) for word in (*puzzle["words_letters"], puzzle["result_letters"])]
    leading = [digits[word[0]] for word in (*puzzle["words_letters"], puzzle["result_letters"])]
    return sum(numbers[:-1]) == numbers[-1] and "0" not in leading


@pytest.mark.parametrize(
    "answer",
    [
        "Aria is a villain and Zoey is a hero",
        "Zoey is a hero\nAria is a villain",
        "zoey: hero, aria: villain",
        "1. Zoey is the hero.\n2. Aria is the villain.",
    ],
)
def test_people_are_correct_in_other_forms(answer: str) -> None:
    assert is_knights_and_knaves(KNIGHTS, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Zoey is a hero, and Aria is a hero",
        "Zoey is a hero",
        "Zoey is a hero, Aria is a villain, Aria is a hero",
        "Zoey is a hero, Aria is a villain, Zoey is a hero",
        "Zoey is a hero, Liam is a villain",
        "Zoey is a knight, Aria is a knave",
        "Zoey is not a hero, Aria is a villain",
        "hero, villain",
    ],
    ids=["a kind", "one missing", "both kinds", "one twice", "another name", "other words", "a denial", "no names"],
)
def test_people_that_break_one_rule_are_incorrect(answer: str) -> None:
    assert not is_knights_and_knaves(KNIGHTS, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "[['tan', 'nat'], ['tea', 'ate', 'eat']]",
        "tea, eat, ate\nnat, tan",
        '["tea", "eat", "ate"]\n["nat", "tan"]',
        "[[tea, eat, ate], [nat, tan]]",
    ],
)
def test_groups_are_correct_in_other_forms(answer: str) -> None:
    assert share_of_groups(ANAGRAMS, answer) == 1


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ('[["nat", "tan"], ["ate", "eat"], ["tea"]]', Fraction(1, 2)),
        ('[["nat", "tan"]]', Fraction(1, 2)),
        ('[["nat", "tan", "ate", "eat", "tea"]]', Fraction(0)),
        ('[["nat"], ["tan"], ["ate"], ["eat"], ["tea"]]', Fraction(0)),
    ],
)
def test_groups_earn_their_share(answer: str, share: Fraction) -> None:
    assert share_of_groups(ANAGRAMS, answer) == share


@pytest.mark.parametrize(
    "answer",
    [
        '[["nat", "tan"], ["nat", "ate"], ["ate", "eat", "tea"]]',
        '[["nat", "tan"], ["nat", "tan"]]',
        '[["nat", "tan"], ["ate", "eat", "tea", "eta"]]',
        '[["nat", "tan"], ["tan"]]',
    ],
    ids=["every group tried", "a group twice", "another word", "a word twice"],
)
def test_groups_with_a_word_that_is_not_theirs_earn_nothing(answer: str) -> None:
    assert share_of_groups(ANAGRAMS, answer) == 0


def test_the_words_of_a_prompt_stand_in_alphabetical_order() -> None:
    words = build_task("group_anagrams", {}, 7).metadata["words"]
    assert words == sorted(words)
