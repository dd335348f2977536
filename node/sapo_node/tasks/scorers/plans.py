"""Scores plans: it simulates the moves of an answer by the rules of the puzzle. A move that is not allowed refuses the
plan.
"""

import operator
import re
from fractions import Fraction

from sapo_node.tasks.scorers.notation import sequence
from sapo_node.tasks.task import Task

_DISK = re.compile(
    r"(?:move )?(?:the )?disk ([0-9]{1,3}) from (?:peg )?([0-9]{1,3}) to (?:peg )?([0-9]{1,3})(?![0-9])", re.IGNORECASE
)


def is_hanoi_plan(task: Task, answer: str) -> bool:
    """Return whether the moves bring all disks to the target peg, a smaller disk never under a larger one.

    The prompt asks for no shortest plan.
    """
    puzzle = task.metadata
    pegs: dict[int, list[int]] = {peg: [] for peg in range(1, puzzle["num_pegs"] + 1)}
    pegs[puzzle["start_peg"]] = list(range(puzzle["num_disks"], 0, -1))
    for move in sequence(_DISK, answer):
        disk, source, target = (int(number) for number in move.groups())
        if source not in pegs or target not in pegs or pegs[source][-1:] != [disk]:
            return False
        if pegs[target] and pegs[target][-1] < disk:
            return False
        pegs[target].append(pegs[source].pop())
    return bool(len(pegs[puzzle["target_peg"]]) == puzzle["num_disks"])


_JUG = re.compile(
    r"(?:(?P<verb>fill|empty) |pour (?:jug )?(?P<source>[A-Z]) ?(?:->|→|to|into) ?)(?:jug )?(?P<jug>[A-Z])(?![A-Z])",
    re.IGNORECASE | re.ASCII,
)


def is_jugs_plan(task: Task, answer: str) -> bool:
    """Return whether a jug holds the target amount after the last move. The prompt asks for no shortest plan."""
    puzzle = task.metadata["puzzle"]
    full = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", puzzle["jug_capacities"], strict=False))
    water = dict.fromkeys(full, 0)
    for move in sequence(_JUG, answer):
        jug, source = move["jug"].upper(), (move["source"] or move["jug"]).upper()
        if jug not in full or source not in full:
            return False
        if move["verb"]:
            water[jug] = full[jug] if move["verb"].lower() == "fill" else 0
        elif source != jug:
            poured = min(water[source], full[jug] - water[jug])
            water[source] -= poured
            water[jug] += poured
    return puzzle["target"] in water.values()


_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_STEP = re.compile("up|down|left|right", re.IGNORECASE)


def is_shortest_path(task: Task, answer: str) -> bool:
    """Return whether the steps lead from * to # through open cells, as few of them as the reference has.

    If the reference says that there is no path, the answer must say so.
    """
    if task.answer == "infeasible":
        return answer.lower().rstrip(".") == "infeasible"
    cells = {(r, c): cell for r, row in enumerate(task.metadata["matrix"]) for c, cell in enumerate(row)}
    row, column = next(place for place, cell in cells.items() if cell == "*")
    steps = sequence(_STEP, answer)
    for step in steps:
        down, right = _STEPS[step[0].lower()]
        row, column = row + down, column + right
        if cells.get((row, column), "X") == "X":
            return False
    return cells[row, column] == "#" and len(steps) == len(task.answer.split())


_BUTTON = re.compile("[A-Z]", re.IGNORECASE | re.ASCII)
_OPERATIONS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}


def opens_lock(task: Task, answer: str) -> bool:
    """Return whether the presses turn the start into the target, with at most as many presses as the reference.

    Every press toggles the light. A press of a button that is not active changes no number. The dataset never presses
    such a button, so its reference is not always the shortest; hence "at most".
    """
    puzzle = task.metadata
    buttons = {button["name"]: button for button in puzzle["buttons"]}
    number, light = puzzle["initial_value"], puzzle["initial_state"]
    presses = sequence(_BUTTON, answer)
    if not 0 < len(presses) <= len(puzzle["solution_path"]):
        return False
    for press in presses:
        button = buttons.get(press[0].upper())
        if button is None:
            return False
        if button["active_state"] in ("any", light):
            number = _OPERATIONS[button["type"]](number, button["value"])
        light = "green" if light == "red" else "red"
    return bool(number == puzzle["target_value"])


_PUSH = re.compile("[UDLR]", re.IGNORECASE)
_MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def share_of_boxes(task: Task, answer: str) -> Fraction:
    """Return the share of boxes beside the goals that the moves bring onto goals, on balance.

    A box that leaves a goal cancels one that reaches a goal. A move into a wall, of two boxes, or after the end, when
    all boxes are on goals, is not allowed.
    """
    rows = task.metadata["gamestr"].replace(" ", "").split("\n")
    cells = {(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)}
    walls = {place for place, cell in cells.items() if cell == "+"}
    goals = {place for place, cell in cells.items() if cell in "X%$"}
    boxes = {place for place, cell in cells.items() if cell in "@$"}
    row, column = next(place for place, cell in cells.items() if cell in "*%")
    astray = len(boxes - goals)
    for move in sequence(_PUSH, answer):
        down, right = _MOVES[move[0].upper()]
        row, column = row + down, column + right
        beyond = (row + down, column + right)
        if (row, column) in walls or boxes <= goals:
            return Fraction(0)
        if (row, column) in boxes:
            if beyond in walls or beyond in boxes:
                return Fraction(0)
            boxes.remove((row, column))
            boxes.add(beyond)
    return Fraction(max(astray - len(boxes - goals), 0), astray) if astray else Fraction(0)
