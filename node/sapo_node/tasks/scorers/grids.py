"""Scores grids: Sudoku, Futoshiki, Kakurasu, Survo and the queens of a chess board."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain

from sapo_node.tasks.scorers.notation import table
from sapo_node.tasks.task import Task

_SIGNS = str.maketrans(dict.fromkeys("<>∧∨^", " "))  # noqa: RUF001 - the signs are the dataset's notation
_NUMBER = re.compile(r"[0-9]{1,9}")
_BLANKS = frozenset("_.0?")
_EMPTY = frozenset("_.-0")


def share_of_cells(task: Task, answer: str) -> Fraction:
    """Return the share of blank cells of a Sudoku or Futoshiki that the answer fills.

    The solution is unique, so a cell is correct if it equals the solution's. An incorrect cell cancels a correct one:
    a grid filled by chance earns nothing, and a cell left blank costs nothing. The given cells must stand.
    """
    given, solution = task.metadata["puzzle"], task.metadata["solution"]
    blank = sum(row.count(0) for row in given)
    grid = _square(answer.translate(_SIGNS), len(given))
    if not grid or not blank:
        return Fraction(0)
    balance = 0
    for fixed, solved, cell in zip(*(chain(*rows) for rows in (given, solution, grid)), strict=True):
        if fixed:
            if cell != str(fixed):
                return Fraction(0)
        elif cell == str(solved):
            balance += 1
        elif cell not in _BLANKS:
            balance -= 1
    return Fraction(max(balance, 0), blank)


def _square(text: str, size: int) -> list[list[str]]:
    """Return a grid of `size` rows and columns. The cells of a row may touch. Empty if the text is no such grid."""
    return _grid(text, size, size)


def _grid(text: str, rows: int, columns: int) -> list[list[str]]:
    cells = table(text)
    if columns > 1 and all(len(row) == 1 for row in cells):
        cells = [list(row[0]) for row in cells]
    return cells if len(cells) == rows and all(len(row) == columns for row in cells) else []


def is_kakurasu(task: Task, answer: str) -> bool:
    """Return whether the answer is a grid of 0 and 1 whose weighted sums are those of the puzzle.

    A 1 counts its column's number in its row, and its row's number in its column.
    """
    rows, columns = task.metadata["row_sums"], task.metadata["col_sums"]
    grid = _grid(answer, len(rows), len(columns))
    if not grid or any(cell not in {"0", "1"} for row in grid for cell in row):
        return False
    by_column = zip(*grid, strict=True)
    return list(map(_weight, grid)) == list(rows) and list(map(_weight, by_column)) == list(columns)


def _weight(line: Sequence[str]) -> int:
    return sum(position for position, cell in enumerate(line, 1) if cell == "1")


def is_survo(task: Task, answer: str) -> bool:
    """Return whether the answer keeps the given numbers, uses the others once each, and has the sums of the margin."""
    given = task.metadata["puzzle"]
    grid = _square(answer, len(given))
    if not grid or not all(_NUMBER.fullmatch(cell) for row in grid for cell in row):
        return False
    numbers = [[int(cell) for cell in row] for row in grid]
    pairs = [pair for rows in zip(given, numbers, strict=True) for pair in zip(*rows, strict=True)]
    if any(fixed not in (0, number) for fixed, number in pairs):
        return False
    if sorted(number for fixed, number in pairs if not fixed) != sorted(task.metadata["candidate_numbers"]):
        return False
    return all(sum(line[:-1]) == line[-1] for line in (*numbers, *zip(*numbers, strict=True)))


def is_n_queens(task: Task, answer: str) -> bool:
    """Return whether the answer keeps the queens of the puzzle and has as many as rows, no two in one line.

    A line is a row, a column or a diagonal.
    """
    given = task.metadata["puzzle"]
    board = _square(answer.upper(), len(given))
    if not board or any(cell != "Q" and cell not in _EMPTY for row in board for cell in row):
        return False
    queens = {(row, column) for row, cells in enumerate(board) for column, cell in enumerate(cells) if cell == "Q"}
    fixed = {(row, column) for row, cells in enumerate(given) for column, cell in enumerate(cells) if cell == "Q"}
    lines = ({r for r, _ in queens}, {c for _, c in queens}, {r + c for r, c in queens}, {r - c for r, c in queens})
    return fixed <= queens and len(queens) == len(given) and all(len(line) == len(queens) for line in lines)
