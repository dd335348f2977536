"""SECURITY.md and the pages about trust say what was measured, and name files and commands that are there."""

import json
import re
from pathlib import Path

import pytest

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.scenarios.scenario import SHARE, load_scenario, scenario_names

ROOT = Path(__file__).parents[3]
PAGE = "\n".join(path.read_text("utf-8") for path in [ROOT / "SECURITY.md", *(ROOT / "docs/trust").glob("*.md")])
MATRIX = json.loads((ROOT / "docs/results/matrix.json").read_text("utf-8"))
PLAYED = {each["scenario"]: each for each in MATRIX["outcomes"] if each["share"] == SHARE}


@pytest.mark.parametrize("name", PLAYED)
def test_the_kept_matrix_is_of_the_scenarios_as_their_files_say(name):
    scenario, played = load_scenario(name), PLAYED[name]
    assert played["without"] == list(scenario.undefended)
    asked = {
        (arm, metric): str(bound)
        for arm in ("undefended", "defended")
        for metric, bound in scenario.bounds(arm, SHARE).items()
    }
    assert {(each["arm"], each["metric"]): each["bound"] for each in played["verdicts"]} == asked


@pytest.mark.parametrize("name", DEFENCES)
def test_every_defence_names_a_file_that_is_there(name):
    assert (ROOT / DEFENCES[name].where).is_file()


def test_every_command_of_the_page_can_be_run():
    assert set(re.findall(r"sapo-adversary run ([a-z-]+)", PAGE)) <= set(scenario_names())
    for path in re.findall(r"(?<=[ `])tests/[\w/.]+", PAGE):
        assert (ROOT / path).exists(), path
