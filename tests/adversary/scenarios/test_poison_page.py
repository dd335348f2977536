"""The page about poison says what was measured: each number of its tables is one of the committed results."""

import json
import re
from pathlib import Path

import pytest

from sapo_adversary.scenarios.scenario import scenario_names

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/poison.md").read_text("utf-8")
RESULTS = json.loads((ROOT / "tests/benchmarks/results/poison.json").read_text("utf-8"))
MEASURED = {
    (each["scenario"], f"{each['attackers']} of {each['peers']}"): each["metrics"] for each in RESULTS["outcomes"]
}
QUARTER = "1 of 4"
"""Attackers of all peers, where a table does not say."""
COUNTED = {
    "answers that say it": "says_phrase",
    "answers with a false step, above the control's": "false_steps",
    "answers that hold it there": "says_trigger",
    "length, to the control's": "longer",
    "weight of a poisoned right answer, to an honest one's": "poison_gain",
    "held-out lost": "heldout_lost",
    "points lost in the task that lost most": "task_lost",
}
"""What a row counts, and the metric that it is."""
COLUMNS = {
    "reward lost with gates": "reward_lost",
    "held-out lost with gates": "heldout_lost",
    "his share of tokens trained on": "trained_share",
    "points lost in the task that lost most": "task_lost",
}
RATIOS = {"longer", "poison_gain"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def tables():
    """Of each table whose rows name a scenario: its rows, by the heading of the column."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        headings, _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines())
        if "scenario" in headings:
            yield [dict(zip(headings, row, strict=True)) for row in rows]


ROWS = [row | {"scenario": row["scenario"].strip("`")} for table in tables() for row in table]


def values(cell, metric):
    """The numbers of a cell, in units of the results."""
    return [float(each) * (1 if metric in RATIOS else 0.01) for each in NUMBER.findall(cell)]


def rounding(metric):
    return 0.005 if metric in RATIOS | {"task_lost"} else 0.0005


def without(name, gate):
    """What a poison does to nodes that lack one gate, by seed; empty where that was not played."""
    poison = RESULTS["at_25_percent"].get(name.removeprefix("poison-").removesuffix("-adaptive").replace("-", "_"), {})
    played = poison.get("adaptive_without" if name.endswith("-adaptive") else "without", {})
    return played.get(f"{gate} gate", [])


def cells():
    """Each cell that was measured, and the values that it shows."""
    for row in ROWS:
        metric, name = COUNTED[row["counted"]], row["scenario"]
        arms = MEASURED[name, row.get("attackers", QUARTER)]
        for column, cell in row.items():
            if column in ("without gates", "with gates"):
                arm = "undefended" if column == "without gates" else "defended"
                yield name, column, cell, metric, arms[arm][metric]
            elif column in COLUMNS and cell:
                yield name, column, cell, COLUMNS[column], arms["defended"][COLUMNS[column]]
            elif column in ("no gates", "all gates"):
                arm = "undefended" if column == "no gates" else "defended"
                yield name, column, cell, metric, arms[arm][metric][:1]
            elif gate := re.fullmatch(r"no `(\w+)`", column):
                yield name, column, cell, metric, [each[metric] for each in without(name, gate[1])]


@pytest.mark.parametrize(("name", "column", "cell", "metric", "measured"), list(cells()))
def test_a_cell_shows_what_was_measured(name, column, cell, metric, measured):
    shown = values(cell, metric)
    assert shown == pytest.approx(measured, abs=rounding(metric) * 1.001), (name, column)


def test_every_poison_that_was_played_has_a_row():
    played = {name for name, _ in MEASURED}
    unlike = {"poison-text-mixed"}  # a section of its own
    assert {row["scenario"] for row in ROWS} == played - unlike
    assert played <= set(scenario_names())
