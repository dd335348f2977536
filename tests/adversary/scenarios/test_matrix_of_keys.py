"""The matrix of keys: which runs it plays, what it compares with friends, and what it can judge without playing."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from run_records import record
from sapo_adversary.cli.main import main
from sapo_adversary.cli.matrix import _overview
from sapo_adversary.cli.run import _show
from sapo_adversary.scenarios.keys_plot import draw_keys
from sapo_adversary.scenarios.matrices import (
    KEYS,
    KEYS_OF,
    cells_of,
    judged_by,
    names_of,
    scenarios_of,
    scenarios_with_keys,
)
from sapo_adversary.scenarios.metrics import ABOUT, metrics
from sapo_adversary.scenarios.outcome import outcome_of, rows
from sapo_adversary.scenarios.page import page
from sapo_adversary.scenarios.play import play, recorded
from sapo_adversary.scenarios.scenario import SHARE, Bound, load_scenario, scenario_names
from sapo_adversary.scenarios.table import markdown
from sapo_adversary.simulator.engine import ThisMachine
from sapo_adversary.simulator.runs import record_path


def strangers(name):
    return replace(load_scenario(name), strangers=True)


def test_each_poison_is_played_with_each_number_of_keys_by_trusted_peers_and_by_strangers():
    played = scenarios_of("keys", ["poison-text-adaptive"])
    assert [(each.keys, each.strangers) for each in played] == [
        (keys, stranger) for stranger in (False, True) for keys in KEYS
    ]


def test_swarms_of_strangers_are_played_once_with_their_own_numbers_of_keys():
    played = scenarios_with_keys(["strangers", "strangers-sybils", "flood"], ())
    assert [(each.name, each.keys) for each in played] == [
        ("strangers", 0),
        *(("strangers-sybils", keys) for keys in (3, 64, 512)),
        *(("flood", keys) for keys in (10, 64, 1024)),
    ]


def test_other_numbers_of_keys_leave_a_swarm_without_attackers_as_it_is():
    played = scenarios_with_keys(["strangers", "flood"], (2,))
    assert [(each.name, each.keys) for each in played] == [("strangers", 0), ("flood", 2)]


def test_all_runs_of_poisons_share_two_controls():
    poisons = [name for name in KEYS_OF if name.startswith("poison-")]
    controls = {each.simulation("control").digest() for each in scenarios_with_keys(poisons, ())}
    assert len(controls) == 2


@pytest.mark.parametrize("name", KEYS_OF)
def test_a_scenario_of_the_matrix_is_judged_by_metrics_that_exist(name):
    assert name in scenario_names()
    assert judged_by(name)
    assert set(judged_by(name)) <= ABOUT.keys()


def test_no_other_matrix_plays_a_scenario_that_shows_no_harm():
    assert not load_scenario("poison-frame").harm
    for kind in ("full", "quick", "poison"):
        assert all(each.harm for each in scenarios_of(kind, names_of(kind)))


def test_strangers_have_the_arm_of_friends_and_others_have_not():
    assert "friends" in strangers("poison-text-adaptive").arms
    assert "friends" in load_scenario("sybil-strangers").arms
    assert "friends" not in load_scenario("poison-text-adaptive").arms


def test_friends_are_the_honest_swarm_with_everybody_trusted():
    friends, control = (strangers("poison-text-adaptive").simulation(arm) for arm in ("friends", "control"))
    assert replace(control, trusted=True, name="") == replace(friends, name="")
    assert friends.digest() == load_scenario("poison-text-adaptive").simulation("control").digest()


def test_a_scenario_without_an_attack_has_no_attackers_in_any_arm():
    scenario = load_scenario("strangers")
    assert scenario.arms == ("alone", "control", "friends", "defended")
    assert scenario.simulation("defended").digest() == scenario.simulation("control").digest()


def test_a_flooding_link_sends_ten_times_as_much_as_an_honest_node():
    for name in ("flood", "flood-links"):
        simulation = load_scenario(name).simulation("defended")
        [band], [node] = simulation.attackers, simulation.nodes
        per_link = band.count / band.acts_every / band.links
        assert per_link == 10 / node.round_seconds


@pytest.mark.parametrize(("reward", "share"), [(0.5, 0.0), (0.6, 0.25), (0.9, 1.0), (0.4, -0.25)])
def test_the_share_of_what_friends_gain_lies_between_alone_and_friends(reward, share):
    found = metrics(record(reward), record(0.7), record(0.5), record(0.9))
    assert found["of_friends"] == pytest.approx(share)
    assert found["reward"] == pytest.approx(reward)


def test_where_friends_gain_nothing_no_share_is_told():
    assert "of_friends" not in metrics(record(0.5), record(0.5), record(0.5), record(0.5))


def test_only_groups_of_honest_peers_count_as_honest():
    attacked = record(0.5, trained=(("own", 8), ("a", 3), ("b", 1), ("attacker", 20)))
    control = record(0.5, trained=(("own", 8), ("a", 4), ("b", 4)))
    found = metrics(attacked, control, record(0.5))
    assert found["honest_external"] == pytest.approx(0.5)
    assert found["external"] == 1.0


def test_rounds_to_a_ban_are_those_of_attackers_alone():
    honest = record(0.5)
    found = metrics(record(0.5, banned=(("b", 1), ("attacker", 5))), honest, honest)
    assert found["rounds_to_ban"] == 5
    assert "rounds_to_ban" not in metrics(record(0.5, banned=(("b", 1),)), honest, honest)


def judged(defended, control, **holds):
    """The outcome of runs whose attacked arms are `defended`, beside a control, and what is asked of it."""
    scenario = replace(load_scenario("false-claim"), harm={}, holds=holds)
    arms = {"alone": control, "control": control, "undefended": defended, "defended": defended}
    return outcome_of(scenario, SHARE, range(1, 1 + len(defended)), arms)


def missed(outcome):
    return {verdict.metric: verdict.bound for verdict in outcome.verdicts() if not verdict.met}


def test_a_hold_on_the_rounds_to_a_ban_is_missed_where_no_attacker_is_banned():
    asked = {"rounds_to_ban": Bound(at_most=2)}
    banned, unbanned = record(0.5, banned=(("attacker", 1),)), record(0.5)
    assert not missed(judged([banned], [unbanned], **asked))
    assert missed(judged([banned, unbanned], [unbanned] * 2, **asked)) == {
        "rounds_to_ban": "at most 2, but not measured with every seed"
    }


def test_where_the_control_earned_nothing_the_loss_is_not_told_and_the_other_metrics_are():
    outcome = judged([record(0.5)], [record(0.0)])
    assert missed(outcome).keys() == {"reward_lost", "heldout_lost", "below_alone"}
    assert outcome.mean("defended", "reward") == 0.5
    table = {row[4]: row[5:] for row in rows(outcome) if row[3] == "defended"}
    assert (str(table["reward_lost"][0]), table["reward_lost"][1]) == ("nan", "missed")
    outcomes = [{**outcome.as_dict(), "share": share} for share in (0.25, 0.5)]
    summary = {"command": "x", "version": "1", "about": {}, "outcomes": outcomes}
    assert "not measured with every seed" in page(summary)


def test_a_loss_that_no_run_tells_is_nowhere_shown_as_no_loss(capsys):
    outcome = judged([record(0.5)], [record(0.0)])
    summary = {"command": "x", "version": "1", "about": {}, "outcomes": [outcome.as_dict()]}
    cells = [cell.strip() for cell in re.findall("<td>([^<]*)", page(summary))]
    assert cells[1:4] == ["not measured", "not measured", "0.0 %"]
    assert "reward lost not measured -> not measured" in markdown(summary)
    overview = _overview([outcome])
    assert [[*overview.columns[place].cells] for place in (2, 3, 4)] == [["not measured"], ["not measured"], ["0.0%"]]
    _show(outcome)
    assert "defended: reward_lost at most 0.02, but not measured with every seed" in capsys.readouterr().out


def test_a_cell_has_the_seeds_whose_run_tells_a_metric():
    [cell] = cells_of([judged([record(0.5)] * 2, [record(0.5), record(0.0)])])
    assert cell["costs"]["reward_lost"] == [0.0]


def test_keys_of_another_matrix_and_a_scenario_that_it_lacks_are_refused(tmp_path, run_here):
    code, told = run_here(main, "matrix", "quick", "--keys", 64, "--output", tmp_path)
    assert (code, "--keys is of the matrices keys and ablation" in told.err) == (2, True)
    code, told = run_here(main, "matrix", "keys", "--only", "false-claim", "--output", tmp_path)
    assert (code, "the matrix keys has no false-claim; it has poison-text-adaptive" in told.err) == (1, True)


@pytest.mark.parametrize(("kind", "scenario"), [("quick", "eclipse"), ("full", "poison-text"), ("full", "scale")])
def test_a_scenario_that_a_matrix_would_not_play_is_refused(tmp_path, run_here, kind, scenario):
    code, told = run_here(main, "matrix", kind, "--only", scenario, "--output", tmp_path)
    assert (code, f"the matrix {kind} has no {scenario}; it has" in told.err) == (1, True)


def test_without_records_there_is_nothing_to_judge_and_older_results_stay(tmp_path, run_here):
    (tmp_path / "keys.json").write_text("older")
    code, told = run_here(main, "matrix", "keys", "--only", "strangers", "--recorded", "--output", tmp_path)
    assert (code, "runs has no seed with all its runs; name their folder" in told.err) == (1, True)
    assert (tmp_path / "keys.json").read_text() == "older"


def test_results_of_a_matrix_name_the_options_that_they_were_made_with(tmp_path, run_here):
    options = ["--only", "flood", "--keys", 2, "--keys", 8, "--recorded"]
    [played, _] = scenarios_of("keys", ["flood"], [2, 8])
    (tmp_path / "runs").mkdir()
    for run in map(played.simulation, played.arms):
        record_path(tmp_path / "runs", run).write_text(json.dumps(record(0.5) | {"digest": run.digest()}))
    for given, named in ((["--seeds", 2], " --seeds 2"), (["--seeds", 3], "")):
        run_here(main, "matrix", "keys", *given, *options, "--output", tmp_path)
        command = json.loads((tmp_path / "keys.json").read_text())["command"]
        assert command == f"sapo-adversary matrix keys{named} {' '.join(map(str, options))}"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Of honest strangers in small, seed 1."""
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def played(records):
    [outcome] = play([SMALL], [1], records, policies=records, engine=ThisMachine(1), console=Console(quiet=True))
    return outcome


@pytest.fixture
def outcome():
    """The outcome of crafted runs of honest strangers."""
    rewards = {"alone": 0.5, "control": 0.6, "friends": 0.9, "defended": 0.6}
    return outcome_of(SMALL[0], SHARE, [1], {arm: [record(reward)] for arm, reward in rewards.items()})


SMALL = (replace(load_scenario("strangers"), scale="quick"), SHARE)


@pytest.mark.slow
def test_honest_strangers_are_measured_against_friends_without_any_attacker(played):
    assert (played.attackers, played.peers) == (0, 6)
    assert list(played.values) == ["defended"]
    assert played.mean("defended", "reward_lost") == 0
    assert -1 < played.mean("defended", "of_friends") < 1


@pytest.mark.slow
def test_only_seeds_with_all_their_records_are_judged(played, records):
    [again] = recorded([SMALL], [1, 2], records)
    assert again.seeds == [1]
    assert again.as_dict() == {**played.as_dict(), "seeds": [1]}


@pytest.mark.slow
def test_a_cell_holds_what_honest_strangers_gained(outcome):
    [cell] = cells_of([outcome])
    assert (cell["scenario"], cell["attackers"], cell["keys"]) == ("strangers", "strangers", 0)
    share = outcome.mean("defended", "of_friends")
    assert cell["judged"] == {"of_friends": [share]}


def cell(keys, said, *, scenario="poison-text-adaptive", attackers="trusted"):
    costs = {"reward_lost": [0.01, 0.02], "heldout_lost": [0.0, 0.02], "trained_share": [0.3, 0.3]}
    judged = {"says_phrase": [said, said + 0.02]}
    return {
        "scenario": scenario,
        "attackers": attackers,
        "keys": keys,
        "seeds": [1, 2],
        "judged": judged,
        "costs": costs,
    }


def test_the_cells_of_the_matrix_are_kept():
    script = runpy.run_path(str(Path(__file__).parents[3] / "scripts/results.py"))
    outcomes = [judged([record(0.5)], [record(0.7)]).as_dict()]
    results = {"command": "x", "version": "1", "outcomes": outcomes, "by_keys": [cell(64, 0.1)]}
    kept = script["summary_of"](results)
    assert kept.keys() == {"command", "version", "by_keys"}
    assert kept["by_keys"] == results["by_keys"]


def test_the_picture_is_the_same_for_the_same_numbers_and_shows_nodes_with_and_without_the_filter(tmp_path):
    without = [cell(keys, 0.8) | {"without": ["n-gram filter"]} for keys in KEYS]
    filtered = [cell(keys, 0.0) for keys in KEYS] + [cell(64, 0.1, attackers="strangers")]
    drawn = []
    for name in ("a.svg", "b.svg"):
        draw_keys(filtered, without, tmp_path / name)
        drawn.append((tmp_path / name).read_text())
    assert drawn[0] == drawn[1]
    assert "poison-text-adaptive, without n-gram filter" in drawn[0]
    assert "poison-text-adaptive, all filters" in drawn[0]
