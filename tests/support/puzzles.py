# ruff: noqa: RUF001 - the signs of the dataset's notation
"""Small puzzles, one for each scorer, in the shape in which the datasets of reasoning-gym make them."""

from collections.abc import Callable
from typing import Any

from sapo_node.tasks.scorers.assignments import (
    is_coloring,
    is_cryptarithm,
    is_knights_and_knaves,
    share_of_groups,
)
from sapo_node.tasks.scorers.durations import is_duration
from sapo_node.tasks.scorers.expressions import (
    is_antiderivative,
    is_countdown,
    is_product,
    share_of_complex,
    share_of_geometry,
)
from sapo_node.tasks.scorers.grids import is_kakurasu, is_n_queens, is_survo, share_of_cells
from sapo_node.tasks.scorers.plans import is_hanoi_plan, is_jugs_plan, is_shortest_path, opens_lock, share_of_boxes
from sapo_node.tasks.task import Task, Verdict


def puzzle(answer: str, **metadata: Any) -> Task:
    return Task("puzzle", "Solve it.", answer, metadata)


MINI_SUDOKU = puzzle(
    "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1",
    puzzle=[[1, 0, 0, 4], [0, 0, 1, 0], [0, 1, 0, 0], [4, 0, 0, 1]],
    solution=[[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]],
)
FUTOSHIKI = puzzle(
    "1   2 < 3\n        ∨\n2 < 3   1\n∧        \n3   1   2",
    puzzle=[[0, 0, 0], [2, 0, 0], [0, 0, 0]],
    solution=[[1, 2, 3], [2, 3, 1], [3, 1, 2]],
)
KAKURASU = puzzle("1 0 1\n0 1 0\n1 1 0", row_sums=[4, 2, 3], col_sums=[4, 5, 1])
SURVO = puzzle(
    "2 3 4 9\n3 2 5 10\n1 1 1 3\n6 6 10 22",
    puzzle=[[0, 0, 4, 9], [0, 0, 5, 10], [1, 1, 1, 3], [6, 6, 10, 22]],
    candidate_numbers=[2, 3, 3, 2],
)
QUEENS = puzzle("_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _", puzzle=[["_"] * 4, ["_"] * 4, ["Q", "_", "_", "_"], ["_"] * 4])
HANOI = puzzle(
    "Move disk 1 from Peg 1 to Peg 2\nMove disk 2 from Peg 1 to Peg 3\nMove disk 1 from Peg 2 to Peg 3",
    num_disks=2,
    num_pegs=3,
    start_peg=1,
    target_peg=3,
)
JUGS = puzzle(
    '["fill B", "pour B->A", "empty A", "pour B->A", "fill B", "pour B->A"]',
    puzzle={"jug_capacities": [3, 5], "target": 4},
)
PATH = puzzle("right right down down", matrix=[["*", "O", "O"], ["O", "X", "O"], ["O", "O", "#"]])
LOCK = puzzle(
    "A → B → A → A",
    initial_value=0,
    initial_state="red",
    target_value=4,
    solution_path=["A", "B", "A", "A"],
    buttons=[
        {"name": "A", "type": "add", "value": 1, "active_state": "any"},
        {"name": "B", "type": "multiply", "value": 2, "active_state": "green"},
        {"name": "C", "type": "subtract", "value": 9, "active_state": "red"},
    ],
)
SOKOBAN = puzzle("RLDRR", gamestr="+ + + + + +  \n+ * @ X - +  \n+ - @ - X +  \n+ + + + + +  \n\n")
COLORING = puzzle(
    '{"0": 1, "1": 2, "2": 3, "3": 1}',
    puzzle={"vertices": [0, 1, 2, 3], "edges": [(0, 1), (0, 2), (1, 2), (2, 3)], "color_options": [1, 2, 3]},
)
CRYPTARITHM = puzzle(
    "A=1,B=2,C=3,D=5",
    letters=["D", "A", "C", "B"],
    words_letters=["AB", "AC"],
    result_letters="BD",
    allow_leading_zero=False,
)
KNIGHTS = puzzle(
    "Zoey is a hero, and Aria is a villain.",
    names=["Zoey", "Aria"],
    solution=(True, False),
    knight_knave_terms={"knight": "hero", "knave": "villain"},
)
ANAGRAMS = puzzle(
    '[["ate", "eat", "tea"], ["nat", "tan"]]',
    words=["ate", "eat", "nat", "tan", "tea"],
    solution=[["ate", "eat", "tea"], ["nat", "tan"]],
)
DURATION = puzzle("3 days, 04:05")
COUNTDOWN = puzzle("2*3 + 7 + 7", numbers=[7, 2, 7, 3], target=20)
PRODUCT = puzzle("6*x**2 - 5*x - 6")
INTEGRAL = puzzle("2*X**3 - X**2/2 + 7*X/3 + C")
COMPLEX = puzzle("3.0 - 2.0i")
ORTHOCENTER = puzzle("(1.857, -2.857)")
ANGLE = puzzle("45.00°")

CHECKED: dict[str, tuple[Callable[[Task, str], Verdict], Task]] = {
    "mini_sudoku": (share_of_cells, MINI_SUDOKU),
    "futoshiki": (share_of_cells, FUTOSHIKI),
    "kakurasu": (is_kakurasu, KAKURASU),
    "survo": (is_survo, SURVO),
    "n_queens": (is_n_queens, QUEENS),
    "tower_of_hanoi": (is_hanoi_plan, HANOI),
    "jugs": (is_jugs_plan, JUGS),
    "shortest_path": (is_shortest_path, PATH),
    "quantum_lock": (opens_lock, LOCK),
    "sokoban": (share_of_boxes, SOKOBAN),
    "graph_color": (is_coloring, COLORING),
    "cryptarithm": (is_cryptarithm, CRYPTARITHM),
    "knights_knaves": (is_knights_and_knaves, KNIGHTS),
    "group_anagrams": (share_of_groups, ANAGRAMS),
    "time_intervals": (is_duration, DURATION),
    "countdown": (is_countdown, COUNTDOWN),
    "polynomial_multiplication": (is_product, PRODUCT),
    "simple_integration": (is_antiderivative, INTEGRAL),
    "complex_arithmetic": (share_of_complex, COMPLEX),
    "advanced_geometry": (share_of_geometry, ORTHOCENTER),
    "advanced_geometry, an angle": (share_of_geometry, ANGLE),
}
"""The scorer of a dataset and a puzzle for it."""
