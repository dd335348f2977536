"""Scorers of grids: rows on lines or in brackets, with cells of digits, decimals or signs."""

import re
from decimal import Decimal
from fractions import Fraction

from sapo_node.tasks.task import Task

_CELL = re.compile(r"-?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})", re.ASCII)
_BRACKETED = re.compile(r"\[[^\[\]]*\](?:[ ,\n]*\[[^\[\]]*\])*", re.ASCII)
_EACH = re.compile(r"\[[^\[\]]*\]")
_NO_SIGN = re.compile("[ ,|'\"\ufe0f]")
_HALF = Decimal("0.005")


def has_rows(task: Task, answer: str) -> Fraction:
    """Return the share of rows that are right and in their place."""
    expected, given = _rows(task.answer), _rows(answer)
    right = sum(one == other for one, other in zip(given, expected, strict=False))
    return Fraction(right, max(len(given), len(expected), 1))


def is_grid_of_decimals(task: Task, answer: str) -> bool:
    """Return whether each cell is the reference's, which is rounded to two decimals, or rounds to it."""
    expected, given = _rows(task.answer), _rows(answer)
    return [len(row) for row in given] == [len(row) for row in expected] and all(
        abs(one - other) <= _HALF
        for row, right in zip(given, expected, strict=True)
        for one, other in zip(row, right, strict=True)
    )


def is_grid_of_signs(task: Task, answer: str) -> bool:
    """Return whether the rows have the same signs, with or without blanks or commas between them."""
    return _signs(answer) == _signs(task.answer)


def _rows(text: str) -> list[list[Decimal]]:
    """Return the numbers of each row; nothing if a cell is no number."""
    rows = [line.replace(",", " ").split() for line in _lines(text)]
    if not all(_CELL.fullmatch(cell) for row in rows for cell in row):
        return []
    return [[Decimal(cell) for cell in row] for row in rows]


def _signs(text: str) -> list[str]:
    return [_NO_SIGN.sub("", line) for line in _lines(text)]


def _lines(text: str) -> list[str]:
    """Return what stands in brackets; the lines that are not blank if there are none."""
    if "[" not in text:
        return [line for line in text.split("\n") if line.strip(" ")]
    body = text[1:-1].strip(" ,\n") if text.startswith("[") and text.endswith("]") else text
    rows = body if body.startswith("[") else text
    return [row[1:-1] for row in _EACH.findall(rows)] if _BRACKETED.fullmatch(rows) else []
