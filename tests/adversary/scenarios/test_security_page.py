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


SELECTED = re.findall(r"`(?:T )?((?:tests[\w/]* ?)+)(?:-m bench )?-k (?:\"([^\"]+)\"|(\w+))`", PAGE)


@pytest.mark.parametrize(("folders", "several", "one"), SELECTED)
def test_each_word_by_which_a_claim_selects_tests_is_in_the_name_of_a_test_or_of_its_file(folders, several, one):
    files = [path for folder in folders.split() for path in (ROOT / folder).rglob("test_*.py")]
    names = " ".join([*(path.stem for path in files), *_tests_in(files)])
    assert [word for word in (several or one).split(" or ") if word not in names] == []


def _tests_in(files):
    return re.findall(r"def (test_\w+)", "".join(path.read_text("utf-8") for path in files))


def test_every_command_of_the_page_can_be_run():
    assert len(SELECTED) > 30
    assert set(re.findall(r"sapo-adversary run ([a-z-]+)", PAGE)) <= set(scenario_names())
    for path in re.findall(r"(?<=[ `])tests/[\w/.]+", PAGE):
        assert (ROOT / path).exists(), path
