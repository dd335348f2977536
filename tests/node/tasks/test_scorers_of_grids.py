"""Grids are checked by their rules, and a cell that is wrong cancels one that is right."""

from fractions import Fraction

import pytest

from puzzles import FUTOSHIKI, KAKURASU, MINI_SUDOKU, QUEENS, SURVO
from sapo_node.tasks import build_task
from sapo_node.tasks.scorers.grids import is_kakurasu, is_n_queens, is_survo, share_of_cells

BLANK_CELLS = 10
"""Cells of MINI_SUDOKU that are not given."""


@pytest.mark.parametrize(
    "answer",
    [
        "[[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]",
        "[1,2,3,4]\n[3,4,1,2]\n[2,1,4,3]\n[4,3,2,1]",
        "1,2,3,4\n3,4,1,2\n2,1,4,3\n4,3,2,1",
        "1234\n3412\n2143\n4321",
        "1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1",
    ],
)
def test_a_sudoku_is_correct_in_other_forms(answer: str) -> None:
    assert share_of_cells(MINI_SUDOKU, answer) == 1


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 _ 1", 9),
        ("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 3 1", 8),
        ("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 2 3 1", 6),
        ("1 2 _ 4\n_ _ 1 _\n_ 1 _ _\n4 _ _ 1", 1),
        ("1 1 1 4\n1 1 1 1\n1 1 1 1\n4 1 1 1", 0),
    ],
)
def test_a_sudoku_earns_the_right_cells_less_the_wrong_ones(answer: str, right: int) -> None:
    assert share_of_cells(MINI_SUDOKU, answer) == Fraction(right, BLANK_CELLS)


@pytest.mark.parametrize(
    "answer",
    [
        "1 _ _ 4\n_ _ 1 _\n_ 1 _ _\n4 _ _ 1",
        "2 1 3 4\n3 4 1 2\n1 2 4 3\n4 3 2 1",
        "1 2 3 4\n3 4 1 2\n2 1 4 3",
        "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1\n1 2 3 4",
        "1 2 3 4 1\n3 4 1 2 1\n2 1 4 3 1\n4 3 2 1 1",
        "1 2 3\n3 4 1 2\n2 1 4 3\n4 3 2 1",
    ],
    ids=["given cells alone", "a given cell changed", "too few rows", "too many rows", "long rows", "a short row"],
)
def test_a_sudoku_that_is_no_attempt_earns_nothing(answer: str) -> None:
    assert share_of_cells(MINI_SUDOKU, answer) == 0


def test_a_futoshiki_may_leave_its_signs_out() -> None:
    assert share_of_cells(FUTOSHIKI, "1 2 3\n2 3 1\n3 1 2") == 1
    assert share_of_cells(FUTOSHIKI, "1 2<3\n2<3 1\n3 1 2") == 1


def test_a_futoshiki_earns_its_right_cells() -> None:
    assert share_of_cells(FUTOSHIKI, "1 2 3\n2 3 1\n3 _ _") == Fraction(6, 8)


@pytest.mark.parametrize("dataset", ["mini_sudoku", "futoshiki"])
@pytest.mark.parametrize("seed", range(3))
def test_the_solution_of_a_puzzle_is_unique(dataset: str, seed: int) -> None:
    task = build_task(dataset, {"max_board_size": 4} if dataset == "futoshiki" else {}, seed)
    assert _completions(task.metadata) == [task.metadata["solution"]]


def _completions(puzzle) -> list[list[list[int]]]:  # type: ignore[no-untyped-def]
    """Return every grid that keeps the given cells and the rules: rows, columns, boxes of 2 by 2, and signs."""
    grid, found = [list(row) for row in puzzle["puzzle"]], []
    given = {(row, column) for row in range(4) for column in range(4) if grid[row][column]}
    signs = {((one, two), (three, four)): sign for one, two, three, four, sign in puzzle.get("constraints", ())}

    def fits(row: int, column: int) -> bool:
        value = grid[row][column]
        seen = [grid[row][other] for other in range(4) if other != column]
        seen += [grid[other][column] for other in range(4) if other != row]
        if "constraints" not in puzzle:
            box = [(r, c) for r in range(4) for c in range(4) if (r // 2, c // 2) == (row // 2, column // 2)]
            seen += [grid[r][c] for r, c in box if (r, c) != (row, column)]
        ordered = all(
            not grid[a][b] or not grid[c][d] or (grid[a][b] < grid[c][d]) == (sign == "<")
            for ((a, b), (c, d)), sign in signs.items()
        )
        return value not in seen and ordered

    def fill(cell: int) -> None:
        row, column = divmod(cell, 4)
        if cell == 16:
            found.append([list(line) for line in grid])
        elif (row, column) in given:
            fill(cell + 1)
        else:
            for value in range(1, 5):
                grid[row][column] = value
                if fits(row, column):
                    fill(cell + 1)
            grid[row][column] = 0

    fill(0)
    return found


@pytest.mark.parametrize("answer", ["[[1,0,1],[0,1,0],[1,1,0]]", "101\n010\n110", "1, 0, 1\n0, 1, 0\n1, 1, 0"])
def test_a_kakurasu_is_correct_in_other_forms(answer: str) -> None:
    assert is_kakurasu(KAKURASU, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "1 0 1\n0 1 0\n0 0 1",
        "0 1 1\n0 1 0\n1 1 0",
        "1 0 1\n0 1 0",
        "1 0 1\n0 1 0\n1 1 0\n0 0 0",
        "1 0 1\n0 1 0\n1 1 2",
        "1 0 1\n0 1 0\n1 1 _",
        "0 0 0\n0 0 0\n0 0 0",
    ],
    ids=["a column's sum", "a row's sum", "too few rows", "too many rows", "a two", "a blank", "the empty grid"],
)
def test_a_kakurasu_that_breaks_one_rule_is_incorrect(answer: str) -> None:
    assert not is_kakurasu(KAKURASU, answer)


def test_every_solution_of_a_survo_is_correct() -> None:
    assert is_survo(SURVO, "2 3 4 9\n3 2 5 10\n1 1 1 3\n6 6 10 22")
    assert is_survo(SURVO, "3 2 4 9\n2 3 5 10\n1 1 1 3\n6 6 10 22")


@pytest.mark.parametrize(
    "answer",
    [
        "2 3 4 9\n2 3 5 10\n1 1 1 3\n6 6 10 22",
        "1 4 4 9\n4 1 5 10\n1 1 1 3\n6 6 10 22",
        "2 3 4 9\n3 2 5 10\n1 1 1 3\n6 6 10 21",
        "2 3 4\n3 2 5\n1 1 1",
        "0 0 4 9\n0 0 5 10\n1 1 1 3\n6 6 10 22",
        "-2 3 4 9\n3 2 5 10\n1 1 1 3\n6 6 10 22",
    ],
    ids=["a column's sum", "other numbers", "a given number", "without sums", "the prompt", "a minus"],
)
def test_a_survo_that_breaks_one_rule_is_incorrect(answer: str) -> None:
    assert not is_survo(SURVO, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "[['_','Q','_','_'],['_','_','_','Q'],['Q','_','_','_'],['_','_','Q','_']]",
        ".Q..\n...Q\nQ...\n..Q.",
        "_ q _ _\n_ _ _ q\nq _ _ _\n_ _ q _",
    ],
)
def test_queens_are_correct_in_other_forms(answer: str) -> None:
    assert is_n_queens(QUEENS, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "_ _ Q _\nQ _ _ _\n_ _ _ Q\n_ Q _ _",
        "_ Q _ _\n_ _ _ _\nQ _ _ _\n_ _ Q _",
        "_ Q _ Q\n_ _ _ _\nQ _ _ _\n_ _ Q _",
        "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ Q _ _",
        "_ _ _ Q\n_ Q _ _\nQ _ _ _\n_ _ Q _",
        "_ Q _ _\n_ _ Q _\nQ _ _ _\n_ _ _ Q",
        "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q Q",
        "_ _ _ _\n_ _ _ _\nQ _ _ _\n_ _ _ _",
        "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q x",
    ],
    ids=[
        "a queen moved",
        "too few",
        "a row",
        "a column",
        "a diagonal",
        "the other diagonal",
        "too many",
        "the prompt",
        "another letter",
    ],
)
def test_queens_that_break_one_rule_are_incorrect(answer: str) -> None:
    assert not is_n_queens(QUEENS, answer)


@pytest.mark.parametrize("seed", range(3))
def test_every_completion_of_a_board_is_correct(seed: int) -> None:
    task = build_task("n_queens", {"min_remove": 6, "max_remove": 6}, seed)
    boards = task.metadata["solutions"]
    assert len(boards) > 1
    assert all(is_n_queens(task, "\n".join(" ".join(row) for row in board)) for board in boards)
