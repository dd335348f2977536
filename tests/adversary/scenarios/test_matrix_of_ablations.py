"""The matrix of ablations: which filters nodes go without, which runs it shares, and what it tells of both arms."""

import csv
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from run_records import record
from sapo_adversary.cli.main import main
from sapo_adversary.cli.played import write_results
from sapo_adversary.scenarios.matrices import (
    KEYS,
    LEFT_OUT,
    cells_without,
    names_of,
    scenarios_of,
    scenarios_with_keys,
    scenarios_without,
)
from sapo_adversary.scenarios.outcome import outcome_of
from sapo_adversary.scenarios.page import page
from sapo_adversary.scenarios.scenario import SHARE, load_scenario
from sapo_node.groups.messages import FILTERS


def gone(scenario):
    """The filters that the nodes of the undefended arm go without."""
    attacked = scenario.simulation("undefended")
    return {*FILTERS} - {*attacked.filters_of(attacked.nodes[0])}


def test_nodes_go_without_the_named_filters_and_keep_the_others():
    played = scenarios_without(["poison-drift-adaptive"], [64])
    assert [gone(each) for each in played] == [
        {"answer-likelihood"},
        {"min-token-prob"},
        {"answer-likelihood", "min-token-prob"},
    ]


def test_every_filter_of_a_node_is_left_out_of_some_poison():
    assert {name for sets in LEFT_OUT.values() for names in sets for name in names} == {*FILTERS, "one-answer"}


def test_each_poison_is_played_with_each_number_of_keys():
    assert [each.keys for each in scenarios_of("ablation", ["poison-text-adaptive"])] == list(KEYS)


def test_the_attacked_nodes_with_all_filters_are_those_of_the_matrix_of_keys():
    [without] = scenarios_without(["poison-text-adaptive"], [64])
    whole = scenarios_with_keys(["poison-text-adaptive"], [64])[0]
    for arm in ("alone", "control", "defended"):
        assert without.simulation(arm).digest() == whole.simulation(arm).digest()


def test_a_scenario_that_leaves_no_filter_out_is_none_of_the_matrix(tmp_path, run_here):
    assert names_of("ablation") == list(LEFT_OUT)
    code, told = run_here(main, "matrix", "ablation", "--only", "poison-text", "--output", tmp_path)
    assert (code, "the matrix ablation has no poison-text; it has poison-math" in told.err) == (1, True)


def outcome(scenario, reward, seeds=(1,)):
    """Of a scenario whose undefended nodes had this reward."""
    control, defended, undefended = record(0.5), record(0.5), record(reward)
    arms = {"alone": control, "control": control, "undefended": undefended, "defended": defended}
    return outcome_of(replace(scenario, harm={}), SHARE, seeds, {arm: [of] * len(seeds) for arm, of in arms.items()})


def test_the_csv_tells_the_runs_of_a_matrix_apart_and_has_each_of_them_once(tmp_path):
    played = scenarios_without(["poison-gibberish-adaptive"], [64, 1])
    rewards = (0.1, 0.2, 0.3, 0.4)
    outcomes = [outcome(each, reward) for each, reward in zip(played, rewards, strict=True)]
    write_results(outcomes, tmp_path, "ablation", "x")
    with (tmp_path / "ablation.csv").open() as file:
        table = [row for row in csv.DictReader(file) if row["metric"] == "reward"]
    assert [(row["attackers"], row["without"], row["value"]) for row in table if row["arm"] == "undefended"] == [
        ("64", "n-gram filter", "0.1"),
        ("1", "n-gram filter", "0.2"),
        ("64", "baseline filter", "0.3"),
        ("1", "baseline filter", "0.4"),
    ]
    assert [row["attackers"] for row in table if row["arm"] == "defended"] == ["64", "1"]


def test_the_page_shows_what_nodes_of_the_same_scenario_went_without_each_with_its_figure_and_its_command():
    played = scenarios_without(["poison-gibberish-adaptive"], [64])
    outcomes = [outcome(each, reward).as_dict() for each, reward in zip(played, (0.1, 0.4), strict=True)]
    drawn = page({"command": "x", "version": "1", "about": {}, "outcomes": outcomes})
    for left_out in ("n-gram filter", "baseline filter"):
        assert f'id="poison-gibberish-adaptive, 64 keys, without {left_out}"' in drawn
        assert f'run poison-gibberish-adaptive --keys 64 --without "{left_out}" --seeds 1' in drawn
    assert "By the attackers' share" not in drawn


def test_a_scenario_as_its_file_says_is_called_by_its_name_alone():
    assert load_scenario("poison-gibberish-adaptive").label == "poison-gibberish-adaptive"
    assert scenarios_with_keys(["poison-frame"], [64])[0].label == "poison-frame, 64 keys"


@pytest.fixture
def cells():
    """Of `poison-beginnings` with 64 and with 1 key, and of `poison-two-answers` with 64."""
    played = scenarios_without(["poison-beginnings"], [64, 1]) + scenarios_without(["poison-two-answers"], [64])[:1]
    return cells_without(outcome(each, reward) for each, reward in zip(played, (0.3, 0.1, 0.4), strict=True))


def test_a_cell_tells_what_the_nodes_went_without_and_nodes_with_all_filters_have_one_cell(cells):
    assert [(each["scenario"], each["keys"], each["without"]) for each in cells] == [
        ("poison-beginnings", 64, []),
        ("poison-beginnings", 64, ["min-token-prob filter"]),
        ("poison-beginnings", 1, []),
        ("poison-beginnings", 1, ["min-token-prob filter"]),
        ("poison-two-answers", 64, []),
        ("poison-two-answers", 64, ["one-answer filter"]),
    ]


@pytest.mark.parametrize("played", [((1, 2), (1,)), ((1,), (1, 2))])
def test_nodes_with_all_filters_have_the_seeds_of_the_run_with_the_most(played):
    scenarios = scenarios_without(["poison-gibberish-adaptive"], [64])
    outcomes = [outcome(each, 0.3, seeds) for each, seeds in zip(scenarios, played, strict=True)]
    assert {len(each["seeds"]) for each in cells_without(outcomes) if not each["without"]} == {2}


def test_the_cells_of_the_matrix_are_kept(cells):
    script = runpy.run_path(str(Path(__file__).parents[3] / "scripts/results.py"))
    kept = script["summary_of"]({"command": "x", "version": "1", "outcomes": [], "without": cells})
    assert kept["without"] == cells
