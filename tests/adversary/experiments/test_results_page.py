"""Every table and picture of the pages is made from the kept summaries, and each summary is of what its file says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sapo_adversary.experiments.experiment import experiment_names, load_experiment

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs/results"
LEARNING = (ROOT / "docs/research/learning.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
KEPT = [name for name in experiment_names() if (RESULTS / f"{name.replace('-', '_')}.json").exists()]


def summary_of(name):
    return json.loads((RESULTS / f"{name.replace('-', '_')}.json").read_text("utf-8"))


def test_every_table_is_the_one_that_its_summary_makes():
    check = [sys.executable, ROOT / "scripts/results.py", "--check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"run: python scripts/results.py\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", KEPT)
def test_the_page_names_the_command_and_shows_the_table_and_the_picture(name):
    file = name.replace("-", "_")
    assert f"    {summary_of(name)['command']}\n" in LEARNING
    assert f"<!-- table: {file} -->\n" in LEARNING
    assert f"](../pictures/{file}.svg)" in LEARNING


GONE = "gradient-agreement"
"""A filter that is gone, and that nodes of some kept summaries had; docs/research/learning.md says which."""


def as_today(value):
    """A configuration without the filter that is gone, and without the arm that left it out alone."""
    if isinstance(value, list):
        return [as_today(each) for each in value if each != GONE]
    if isinstance(value, dict):
        return {key: as_today(each) for key, each in value.items() if GONE not in key}
    return value


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_summary_is_of_the_experiment_as_its_file_says(name):
    summary, experiment = summary_of(name), load_experiment(name)
    assert as_today(summary["config"]) == json.loads(json.dumps(experiment.table))
    assert [arm for arm in summary["arms"] if GONE not in arm] == list(experiment.arms)
    assert {len(figures["cumulative"]) for figures in summary["arms"].values()} == {len(experiment.seeds)}


def test_pages_show_every_picture_that_is_kept_and_no_other():
    shown = {
        (page.parent / path).resolve()
        for page in PAGES
        for path in re.findall(r"!\[[^]]*\]\((?!http)([^)]+)\)", page.read_text("utf-8"))
    }
    assert all(path.is_file() for path in shown)
    assert {path.resolve() for path in (ROOT / "docs/pictures").iterdir()} <= shown
