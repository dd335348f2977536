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
REPORT = (ROOT / "docs/research/report.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
KEPT = [name for name in experiment_names() if (RESULTS / f"{name.replace('-', '_')}.json").exists()]


def summary_of(name):
    return json.loads((RESULTS / f"{name.replace('-', '_')}.json").read_text("utf-8"))


def test_every_table_is_the_one_that_its_summary_makes():
    check = [sys.executable, ROOT / "scripts/results.py", "--check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"run: python scripts/results.py\n{done.stdout}{done.stderr}"


def test_the_report_names_the_command_and_the_commit_of_every_summary_that_is_kept():
    [inventory] = re.findall(r"<!-- table: summaries -->(.*?)<!-- end -->", REPORT, re.DOTALL)
    for path in RESULTS.glob("*.json"):
        summary = json.loads(path.read_text("utf-8"))
        assert f"docs/results/{path.name}) {summary['commit']}" in inventory


def test_a_result_in_the_prose_of_the_report_stands_in_one_of_its_tables():
    tables = "".join(re.findall(r"<!-- table: .*?<!-- end -->", REPORT, re.DOTALL))
    prose = re.sub(r"<!-- table: .*?<!-- end -->", "", REPORT, flags=re.DOTALL)
    results = re.findall(r"[+-]?\d+(?:\.\d+)?%(?: \([^)]*%\))?", prose)
    assert len(results) > 6
    assert [each for each in results if each not in tables] == []


GONE = "gradient-agreement"
"""A filter that is gone, and that nodes of some kept summaries had; the report says which."""


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
