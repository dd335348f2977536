"""Scores lists of numbers, words and signs. Commas, line feeds or blanks separate the entries.

An entry may stand in quotes, and the list in brackets. The order counts.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from sapo_node.tasks.scorers.notation import DECIMAL, with_ascii_minus
from sapo_node.tasks.task import Task

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_QUOTES = "'\"`"
_NUMBER = re.compile(DECIMAL)
_BETWEEN_NUMBERS = re.compile(r"(?:[ \n,;]|\band\b)+", re.ASCII)
_BETWEEN_WORDS = re.compile(r" ?[,;\n]+ ?", re.ASCII)
_ARROWS = re.compile(r"->|→|=>|⇒", re.ASCII)


def share_of_beginning(given: Sequence[object], expected: Sequence[object]) -> Fraction:
    """Return the share of the longer list before the first difference, from 0 to 1."""
    right = 0
    for one, other in zip(given, expected, strict=False):
        if one != other:
            break
        right += 1
    return Fraction(right, max(len(given), len(expected), 1))


def share_in_place(given: Sequence[object], expected: Sequence[object]) -> Fraction:
    """Return the share of the longer list whose entries the other list has in the same place, from 0 to 1."""
    right = sum(one == other for one, other in zip(given, expected, strict=False))
    return Fraction(right, max(len(given), len(expected), 1))


def is_list_of_numbers(task: Task, answer: str) -> bool:
    """Return whether the answer has the same numbers, by value. Arrows may separate them, as in a path."""
    expected = _numbers(task.answer)
    return expected is not None and _numbers(answer) == expected


def has_first_numbers(task: Task, answer: str) -> Fraction:
    """Return the share of numbers before the first difference. Numbers are compared by value."""
    return _share(_numbers, task, answer)


def is_list_of_words(task: Task, answer: str) -> bool:
    """Return whether the answer has the same words in the same case."""
    return _words(answer) == _words(task.answer)


def has_first_words(task: Task, answer: str) -> Fraction:
    """Return the share of words before the first difference."""
    return _share(_words, task, answer)


def is_list_of_signs(task: Task, answer: str) -> bool:
    """Return whether the answer has the same signs, with or without blanks between them."""
    return _signs(answer) == _signs(task.answer)


def is_row(task: Task, answer: str) -> bool:
    """Return whether the answer has the same cells. Blanks or commas separate them; brackets may surround them."""
    if answer.startswith("[") and answer.endswith("]"):
        answer = answer[1:-1]
    return answer.replace(",", " ").split() == task.answer.split()


def _share(read: Callable[[str], Sequence[object] | None], task: Task, answer: str) -> Fraction:
    expected, given = read(task.answer), read(answer)
    return Fraction(0) if expected is None or given is None else share_of_beginning(given, expected)


def _numbers(text: str) -> list[Decimal] | None:
    inner = _ARROWS.sub(",", with_ascii_minus(_without_brackets(text)))
    entries = [_without_quotes(entry) for entry in _BETWEEN_NUMBERS.split(inner) if entry]
    if not all(map(_NUMBER.fullmatch, entries)) or (inner and not entries):
        return None
    return [Decimal(entry) for entry in entries]


def _words(text: str) -> list[str]:
    inner = _without_brackets(text).strip(" \n,;")
    entries = _BETWEEN_WORDS.split(inner)
    if len(entries) == 1:
        entries = inner.split()
    elif entries[-1].startswith("and "):
        entries[-1] = entries[-1].removeprefix("and ")
    return [_without_quotes(entry.strip(" ")) for entry in entries]


def _signs(text: str) -> str:
    return re.sub(rf"[ \n,;{_QUOTES}]", "", _without_brackets(text))


def _without_brackets(text: str) -> str:
    return text[1:-1].strip(" \n") if len(text) > 1 and _BRACKETS.get(text[0]) == text[-1] else text


def _without_quotes(entry: str) -> str:
    return entry[1:-1] if len(entry) > 2 and entry[0] == entry[-1] and entry[0] in _QUOTES else entry
