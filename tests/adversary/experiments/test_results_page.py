"""Every table of the results page is the one that its committed numbers make."""

import json
from pathlib import Path

import pytest

from sapo_adversary.experiments.experiment import experiment_names, load_experiment
from sapo_adversary.experiments.tables import markdown

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/learning.md").read_text("utf-8")
RESULTS = {
    name: ROOT / f"tests/benchmarks/results/{name.replace('-', '_')}.json"
    for name in experiment_names()
    if (ROOT / f"tests/benchmarks/results/{name.replace('-', '_')}.json").exists()
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_page_shows_the_table_of_the_committed_results(name):
    assert markdown(json.loads(RESULTS[name].read_text("utf-8"))) in PAGE


@pytest.mark.parametrize("name", RESULTS)
def test_the_page_names_the_command_and_shows_the_picture(name):
    assert f"sapo-adversary experiment {name}\n" in PAGE
    assert f"../tests/benchmarks/results/{name.replace('-', '_')}.svg" in PAGE


@pytest.mark.parametrize("name", RESULTS)
def test_committed_results_are_of_the_experiment_as_its_file_says(name):
    summary = json.loads(RESULTS[name].read_text("utf-8"))
    experiment = load_experiment(name)
    assert summary["config"] == json.loads(json.dumps(experiment.table))
    assert list(summary["arms"]) == list(experiment.arms)
    assert {len(figures["cumulative"]) for figures in summary["arms"].values()} == {len(experiment.seeds)}
