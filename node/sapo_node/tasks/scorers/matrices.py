"""Scores matrices of numbers or signs."""

import re
from fractions import Fraction

from sapo_node.tasks.scorers.lists import share_in_place
from sapo_node.tasks.scorers.notation import DECIMAL, table
from sapo_node.tasks.task import Task

_NUMBER = re.compile(DECIMAL)
_HALF = Fraction(1, 200)
"""Half of one hundredth."""
_STYLE = "\ufe0f"
"""The character that has a sign before it shown as a picture."""


def is_matrix(task: Task, answer: str) -> bool:
    """Return whether the answer is the same matrix of numbers. `[]` has none, and only `[]` equals it."""
    expected = _numbers(task.answer)
    return _numbers(answer) == expected if expected else answer.replace(" ", "") == task.answer


def has_rows(task: Task, answer: str) -> Fraction:
    """Return the share of rows that are right and in their place."""
    return share_in_place(_numbers(answer), _numbers(task.answer))


def is_grid_of_decimals(task: Task, answer: str) -> bool:
    """Return whether each cell is the reference's, which is rounded to two decimals, or rounds to it."""
    expected, given = _numbers(task.answer), _numbers(answer)
    return [len(row) for row in given] == [len(row) for row in expected] and all(
        abs(one - other) <= _HALF
        for row, right in zip(given, expected, strict=True)
        for one, other in zip(row, right, strict=True)
    )


def is_grid_of_signs(task: Task, answer: str) -> bool:
    """Return whether the rows have the same signs, with or without blanks or commas between them."""
    return _signs(answer) == _signs(task.answer)


def _numbers(text: str) -> list[list[Fraction]]:
    """Return the numbers of each row; nothing if a cell is no number."""
    rows = table(text)
    if not all(_NUMBER.fullmatch(cell) for row in rows for cell in row):
        return []
    return [[Fraction(cell) for cell in row] for row in rows]


def _signs(text: str) -> list[str]:
    return ["".join(row).replace(_STYLE, "") for row in table(text)]
