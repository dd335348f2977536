"""Plans are simulated: every plan that reaches the goal is correct, and one move that is not allowed refuses a plan."""

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import pytest

from puzzles import HANOI, JUGS, LOCK, PATH, SOKOBAN, puzzle
from sapo_node.tasks import build_task, score
from sapo_node.tasks.scorers.plans import is_hanoi_plan, is_jugs_plan, is_shortest_path, opens_lock, share_of_boxes


def hanoi(*moves: tuple[int, int, int]) -> str:
    return "\n".join(f"Move disk {disk} from Peg {source} to Peg {target}" for disk, source, target in moves)


@pytest.mark.parametrize(
    "answer",
    [
        "1. Move disk 1 from Peg 1 to Peg 2\n2. Move disk 2 from Peg 1 to Peg 3\n3. Move disk 1 from Peg 2 to Peg 3",
        "move disk 1 from peg 1 to peg 2. move disk 2 from peg 1 to peg 3. move disk 1 from peg 2 to peg 3.",
        '["Move disk 1 from Peg 1 to Peg 2", "Move disk 2 from Peg 1 to Peg 3", "Move disk 1 from Peg 2 to Peg 3"]',
        "- Disk 1 from 1 to 2\n- Disk 2 from 1 to 3\n- Disk 1 from 2 to 3",
    ],
)
def test_moves_of_disks_are_correct_in_other_forms(answer: str) -> None:
    assert is_hanoi_plan(HANOI, answer)


def test_a_longer_plan_moves_all_disks_too() -> None:
    assert is_hanoi_plan(HANOI, hanoi((1, 1, 3), (1, 3, 2), (2, 1, 3), (1, 2, 3)))


@pytest.mark.parametrize(
    "answer",
    [
        hanoi((1, 1, 3), (2, 1, 3)),
        hanoi((1, 1, 2), (2, 1, 3)),
        hanoi((2, 1, 3), (1, 1, 3)),
        hanoi((1, 1, 2), (2, 1, 3), (1, 1, 3)),
        hanoi((1, 1, 4), (2, 1, 3), (1, 4, 3)),
        hanoi((1, 1, 3), (2, 1, 2), (1, 3, 2)),
        hanoi((1, 1, 2), (2, 1, 3), (1, 2, 3), (3, 3, 3)),
    ],
    ids=["large on small", "unfinished", "not the top", "not there", "no such peg", "another peg", "no such disk"],
)
def test_moves_of_disks_that_break_one_rule_are_incorrect(answer: str) -> None:
    assert not is_hanoi_plan(HANOI, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "fill B\npour B->A\nempty A\npour B->A\nfill B\npour B->A",
        "1. Fill B, 2. Pour B to A, 3. Empty A, 4. Pour B into A, 5. Fill jug B, 6. pour jug B → jug A",
        "['fill B', 'pour B->A', 'empty A', 'pour B->A', 'fill B', 'pour B->A']",
    ],
)
def test_moves_of_water_are_correct_in_other_forms(answer: str) -> None:
    assert is_jugs_plan(JUGS, answer)


def test_a_longer_plan_of_water_is_correct() -> None:
    assert is_jugs_plan(JUGS, '["fill A", "empty A", "fill B", "fill B", ' + JUGS.answer[11:])


@pytest.mark.parametrize(
    "answer",
    [
        '["fill B", "pour B->A", "empty A", "pour B->A", "fill B"]',
        JUGS.answer[:-1] + ', "empty B"]',
        JUGS.answer.replace("B", "C"),
        JUGS.answer.replace("empty", "drain"),
        '["fill B", "pour B->A", "pour B->A"]',
        '["fill D"]',
    ],
    ids=["unfinished", "emptied again", "no such jug", "another verb", "two litres", "no jugs"],
)
def test_moves_of_water_that_miss_the_target_are_incorrect(answer: str) -> None:
    assert not is_jugs_plan(JUGS, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "down down right right",
        "Right, right, down, down",
        "right → right → down → down",
        "1. right\n2. right\n3. down\n4. down",
    ],
)
def test_every_shortest_path_is_correct(answer: str) -> None:
    assert is_shortest_path(PATH, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "right left right right down down",
        "right down down right",
        "right right down",
        "right right right down",
        "left right right down down",
        "right right down down left",
        "infeasible",
    ],
    ids=["longer", "through a block", "too short", "out of the grid", "out and back", "past the goal", "infeasible"],
)
def test_steps_that_break_one_rule_are_incorrect(answer: str) -> None:
    assert not is_shortest_path(PATH, answer)


def test_a_path_that_is_not_there_must_be_called_infeasible() -> None:
    task = puzzle("infeasible", matrix=[["*", "X", "#"]])
    assert is_shortest_path(task, "Infeasible.")
    assert not is_shortest_path(task, "right right")


@pytest.mark.parametrize(
    "answer", ["A, A, A, A", "A->B->A->A", "a b a a", "ABAA", '["A", "B", "A", "A"]', "1. A\n2. B\n3. A\n4. A"]
)
def test_every_shortest_sequence_of_presses_is_correct(answer: str) -> None:
    assert opens_lock(LOCK, answer)


@pytest.mark.parametrize(
    "answer",
    ["AABAA", "AAA", "AABA", "AAAD", "BAAA", "CAAA"],
    ids=["longer", "too short", "a press without effect", "no such button", "multiplied too early", "subtracted"],
)
def test_presses_that_break_one_rule_are_incorrect(answer: str) -> None:
    assert not opens_lock(LOCK, answer)


@pytest.mark.parametrize("answer", ["r l d r r", "R, L, D, R, R", "DRRLLUR", "R → L → D → R → R"])
def test_every_solution_of_a_sokoban_is_correct(answer: str) -> None:
    assert share_of_boxes(SOKOBAN, answer) == 1


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("R", Fraction(1, 2)),
        ("DRR", Fraction(1, 2)),
        ("RR", Fraction(0)),
        ("RLDR", Fraction(1, 2)),
        ("DU", Fraction(0)),
    ],
)
def test_a_sokoban_earns_its_boxes_on_goals(answer: str, share: Fraction) -> None:
    assert share_of_boxes(SOKOBAN, answer) == share


@pytest.mark.parametrize(
    "answer",
    ["RRR", "RLDRRR", "UDRLDRR", "LRLDRR", "RLDRRX", "RLDRRL"],
    ids=["two steps", "into a wall", "through a wall", "left", "another letter", "after the end"],
)
def test_a_move_that_is_not_allowed_refuses_a_sokoban(answer: str) -> None:
    assert share_of_boxes(SOKOBAN, answer) == 0


def test_a_box_that_leaves_a_goal_cancels_one_that_reaches_a_goal() -> None:
    task = puzzle("", gamestr="+ + + + + + +\n+ * $ - - - +\n+ - @ X - - +\n+ + + + + + +\n")
    assert share_of_boxes(task, "DR") == 1
    assert share_of_boxes(task, "RLDR") == 0


def test_two_boxes_in_a_row_do_not_move() -> None:
    task = puzzle("", gamestr="+ + + + + + +\n+ * @ @ X - +\n+ + + + + + +\n")
    assert share_of_boxes(task, "R") == 0


def paths(start: Any, moves: Callable[[Any], Iterable[tuple[str, Any]]], done: Callable[[Any], bool]) -> list[str]:
    """Return two shortest sequences of moves, if there are two, by breadth-first search over the sequences."""
    found: list[tuple[str, ...]] = []
    waiting = deque([((), start)])
    visits: dict[Any, int] = {}
    while waiting and len(found) < 2:
        path, state = waiting.popleft()
        if done(state):
            found.append(path)
            continue
        visits[state] = visits.get(state, 0) + 1
        if visits[state] <= 2:
            waiting.extend(((*path, name), after) for name, after in moves(state))
    return [",".join(path) for path in found]


@pytest.mark.parametrize("seed", range(4))
def test_other_solutions_of_jugs_are_correct(seed: int) -> None:
    task = build_task("jugs", {"difficulty": 4}, seed)
    full = task.metadata["puzzle"]["jug_capacities"]

    def moves(state: tuple[int, ...]) -> Iterable[tuple[str, tuple[int, ...]]]:
        for jug in range(3):
            yield f"fill {'ABC'[jug]}", (*state[:jug], full[jug], *state[jug + 1 :])
            yield f"empty {'ABC'[jug]}", (*state[:jug], 0, *state[jug + 1 :])
        for source, target in itertools.permutations(range(3), 2):
            poured = min(state[source], full[target] - state[target])
            after = list(state)
            after[source], after[target] = state[source] - poured, state[target] + poured
            yield f"pour {'ABC'[source]}->{'ABC'[target]}", tuple(after)

    found = paths((0, 0, 0), moves, lambda state: task.metadata["puzzle"]["target"] in state)
    assert len(set(found)) == 2
    assert all(is_jugs_plan(task, json.dumps(plan.split(","))) for plan in found)


@pytest.mark.parametrize("seed", range(4))
def test_other_shortest_paths_of_a_grid_are_correct(seed: int) -> None:
    task = build_task("shortest_path", {"min_rows": 5, "max_rows": 5, "p_blocked": 0.1}, seed)
    cells = {(r, c): cell for r, row in enumerate(task.metadata["matrix"]) for c, cell in enumerate(row)}
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

    def moves(place: tuple[int, int]) -> Iterable[tuple[str, tuple[int, int]]]:
        for name, (down, right) in steps.items():
            after = (place[0] + down, place[1] + right)
            if cells.get(after, "X") != "X":
                yield name, after

    start = next(place for place, cell in cells.items() if cell == "*")
    found = paths(start, moves, lambda place: cells[place] == "#")
    shortest = [path for path in found if len(path.split(",")) == len(found[0].split(","))]
    assert all(is_shortest_path(task, path.replace(",", " ")) for path in shortest)
    assert len(found[0].split(",")) == len(task.answer.split())


@pytest.mark.parametrize("seed", range(4))
def test_the_shortest_presses_are_correct(seed: int) -> None:
    task = build_task("quantum_lock", {"difficulty": 5}, seed)

    def moves(state: tuple[int, str]) -> Iterable[tuple[str, tuple[int, str]]]:
        number, light = state
        for button in task.metadata["buttons"]:
            value = {"add": number + button["value"], "subtract": number - button["value"]}
            after = value.get(button["type"], number * button["value"])
            active = button["active_state"] in ("any", light)
            yield button["name"], (after if active else number, "green" if light == "red" else "red")

    found = paths((0, "red"), moves, lambda state: state[0] == task.metadata["target_value"])
    assert opens_lock(task, found[0])


def test_a_plan_of_jugs_may_have_three_times_the_length_of_the_reference() -> None:
    task = build_task("jugs", {}, 5)
    idle = '"fill A", "empty A", ' * (len(task.answer) // 10)
    assert score(task, f"<answer>[{idle}{task.answer[1:]}</answer>")


def test_a_plan_of_disks_may_have_three_times_the_length_of_the_reference() -> None:
    task = build_task("tower_of_hanoi", {}, 5)
    _, _, _, _, _, source, _, _, target = task.answer.split("\n")[0].split()
    idle = hanoi((1, int(source), int(target)), (1, int(target), int(source))) + "\n"
    assert score(task, f"<answer>{idle * (len(task.answer) // 32)}{task.answer}</answer>")


def test_a_sokoban_may_have_three_times_the_moves_of_the_reference() -> None:
    task = build_task("sokoban", {}, 5)
    assert any(
        score(task, f"<answer>{idle * len(task.answer)}{task.answer}</answer>") for idle in ("LR", "RL", "UD", "DU")
    )
