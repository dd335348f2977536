"""Experiments are files; their figures are those one works out by hand."""

import copy
import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from sapo_adversary.experiments.experiment import experiment_names, load_experiment
from sapo_adversary.experiments.plots import draw, draw_tasks
from sapo_adversary.experiments.summary import drawdown, oscillation, rounds_to, summarise
from sapo_adversary.experiments.tables import header, markdown, rows
from sapo_adversary.files import read_results, to_json
from sapo_protocol import LocalError


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_of_the_package_can_be_read(name):
    experiment = load_experiment(name)
    assert any(experiment.compared_with(arm) for arm in experiment.arms)
    assert len(experiment.all_simulations()) == len(experiment.arms) * len(experiment.seeds)


def test_the_table_has_the_arms_of_the_paper_and_its_controls():
    arms = load_experiment("sapo-table").arms
    assert list(arms) == ["8/0", "6/2", "4/4", "2/6", "4/0", "4/0+replay", "8/0+filter", "8/0+filter-unlimited"]
    assert {simulation.groups for simulation in arms.values()} == {8}
    assert {simulation.seconds for simulation in arms.values()} == {400}


def test_arms_share_their_seeds():
    experiment = load_experiment("sapo-table")
    assert [each.seed for each in experiment.simulations("4/4")] == [
        each.seed for each in experiment.simulations("8/0")
    ]


def experiment_file(tmp_path, arms):
    path = tmp_path / "own.toml"
    path.write_text(
        'title = "t"\nquestion = "q"\nseeds = [1, 2]\nreference = "a"\nceiling = 0.8\n'
        "[simulation]\nseconds = 30\n[[simulation.nodes]]\nrole = 'strong'\n"
        "[[simulation.nodes]]\nrole = 'weak'\ncount = 2\n" + arms
    )
    return path


def test_an_arm_changes_all_nodes_or_those_of_one_role(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\nlocal = 8\n[arms.b]\nstrong = { local = 3 }\nseconds = 50\n")
    experiment = load_experiment(str(path))
    assert [node.local for node in experiment.arms["a"].nodes] == [8, 8]
    assert [node.local for node in experiment.arms["b"].nodes] == [3, 4]
    assert (experiment.arms["a"].seconds, experiment.arms["b"].seconds) == (30, 50)


def test_a_key_that_means_nothing_is_refused(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\nlocl = 8\n")
    with pytest.raises(LocalError, match="locl"):
        load_experiment(str(path))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seconds = 30", "seconds = 30\nseed = 4", "simulation has no 'seed'; write seeds"),
        ("seconds = 30", "seconds = 30\nname = 'x'", "simulation has no 'name'; the name of an arm"),
        ("[grid]\nlocal = [2, 4]", "[grid]\nlocal = []", "local of the grid is empty"),
        ("[arms.a]", "[arms.a]\nlocal = 3", "arm a and the grid both set 'local'"),
        ("role = 'weak'", "role = 'local'", "the role 'local' has the name of a key"),
        ("[arms.a]", "[arms.a]\nstrong = { nonsense = 1 }", "no 'nonsense'"),
        ("[grid]", "[grid]\nnonsense = [1]", "'nonsense' is no key"),
    ],
)
def test_a_key_that_would_have_no_effect_is_refused_with_where_it_belongs(tmp_path, old, new, says):
    path = experiment_file(tmp_path, "[arms.a]\n[grid]\nlocal = [2, 4]\n")
    assert load_experiment(str(path)).arms
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(LocalError, match=re.escape(says)):
        load_experiment(str(path))


@pytest.mark.parametrize(
    ("arms", "both"),
    [
        ("[arms.a]\n[arms.b]\n", "a and b are"),
        ("[arms.a]\nlearner = 'bandit'\n[arms.b]\nlearner = 'bandit'\nfilters = ['n-gram']\n", "a and b are"),
        ("[arms.a]\n[grid]\nlocal = [4, 4]\n", "a, local 4 and a, local 4 are"),
    ],
)
def test_arms_that_would_be_one_run_are_refused_since_their_comparison_says_nothing(tmp_path, arms, both):
    with pytest.raises(LocalError, match=f"own: the arms {both} the same run"):
        load_experiment(str(experiment_file(tmp_path, arms)))


def test_an_arm_that_the_grid_does_not_change_may_be_the_same_run_at_several_points(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\nexternal = 0\n[arms.b]\n[grid]\nfilters = [[], ['n-gram']]\n")
    assert len(load_experiment(str(path)).arms) == 4


def test_a_seed_that_is_given_twice_is_refused(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\n")
    path.write_text(path.read_text().replace("seeds = [1, 2]", "seeds = [1, 2, 1]"))
    with pytest.raises(LocalError, match="own: seeds names a number twice; give each once"):
        load_experiment(str(path))


def test_a_grid_plays_every_arm_at_every_point(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\n[grid]\nlearning_rate = [1e-4, 2e-4]\nlocal = [2, 4]\n")
    arms = load_experiment(str(path)).arms
    assert len(arms) == 4
    assert {(s.nodes[0].learning_rate, s.nodes[0].local) for s in arms.values()} == {
        (1e-4, 2),
        (1e-4, 4),
        (2e-4, 2),
        (2e-4, 4),
    }


def test_a_name_that_is_none_lists_those_there_are():
    with pytest.raises(LocalError, match="sapo-table"):
        load_experiment("sapo-tabel")


def test_half_of_the_ceiling_is_reached_by_a_mean_of_five_rounds():
    assert rounds_to([0.0] * 10 + [0.5] * 10, 0.4) == 14
    assert rounds_to([0.0] * 20, 0.4) is None


def test_a_straight_line_does_not_oscillate_and_never_falls():
    line = [place / 100 for place in range(60)]
    assert oscillation(line) == pytest.approx(0)
    assert drawdown(line) == 0


def test_a_curve_that_swings_oscillates_and_falls():
    swing = [0.2 if place // 10 % 2 else 0.4 for place in range(60)]
    assert oscillation(swing) == pytest.approx(0.2)
    assert drawdown(swing) == pytest.approx(0.2)


def node(number, rewards, final):
    rounds = len(rewards)
    return {
        "peer": f"peer {number}",
        "rounds": {
            "reward": rewards,
            "informative": [1] * rounds,
            "local": [8] * rounds,
            "external": [0] * rounds,
            "generated_tokens": [100 * (place + 1) for place in range(rounds)],
        },
        "heldout": [
            {"round": 0, "pass_at_1": 0.0, "per_task": {"x": 0.0}},
            {"round": rounds // 2, "pass_at_1": final / 2, "per_task": {"x": final / 2}},
            {"round": rounds, "pass_at_1": final, "per_task": {"x": final}},
        ],
        "carried": [["x", "", 30], ["x", "peer 0", 10]],
        "trained": {"own": {"groups": 3, "tokens": 30}, "q": {"groups": 1, "tokens": 10}},
    }


def run(simulation, rewards, final):
    nodes = [node(number, rewards, final) for number in range(len(simulation.members))]
    timing = {"cpu_seconds": [[1.0] * len(rewards) for _ in nodes]}
    return {"scenario": simulation.as_dict(), "nodes": nodes, "timing": timing}


def test_the_averaged_weights_have_a_figure_a_curve_and_a_column_where_they_were_measured(tmp_path):
    experiment = load_experiment(str(experiment_file(tmp_path, "[arms.a]\n"))).part(["a"], 1)
    plain = run(experiment.arms["a"], [0.1] * 10, 0.5)
    measured = copy.deepcopy(plain)
    for member in measured["nodes"]:
        for each in member["heldout"]:
            each["averaged"] = each["pass_at_1"] + 0.25
    without, averaged = (summarise(experiment, {"a": [record]}) for record in (plain, measured))
    assert averaged["arms"]["a"]["heldout_averaged"] == [0.75]
    assert averaged["arms"]["a"]["curves"]["heldout_averaged"] == [[[0, 0.25], [5, 0.5], [10, 0.75]]]
    assert header(averaged)[-1] == "held-out, averaged weights"
    assert {row[-1] for row in rows(averaged)} == {"0.750"}
    assert "heldout_averaged" not in without["arms"]["a"]
    assert len(header(without)) == len(header(averaged)) - 1


@pytest.fixture
def summary(tmp_path):
    experiment = load_experiment(str(experiment_file(tmp_path, "[arms.a]\n[arms.b]\nlocal = 8\n")))
    rewards = {"a": [0.1] * 30, "b": [0.2] * 15 + [0.5] * 15}
    records = {
        arm: [run(simulation, rewards[arm], 0.3 if arm == "a" else 0.6) for simulation in experiment.simulations(arm)]
        for arm in experiment.arms
    }
    return summarise(experiment, records)


def test_a_summary_adds_up_what_the_nodes_earned(summary):
    figures = summary["arms"]["b"]
    assert figures["cumulative"] == [pytest.approx(3 * (15 * 0.2 + 15 * 0.5))] * 2
    assert figures["informative"] == [0.125] * 2
    assert figures["generated_tokens"] == [3 * 3000] * 2
    assert figures["external_tokens"] == [30] * 2
    assert figures["rounds_to_half"] == [19, 19]
    assert figures["tokens_to_half"] == [3 * 1900] * 2
    assert summary["arms"]["a"]["rounds_to_half"] == [None, None]


def test_a_gain_is_a_ratio_by_seed_with_its_interval(summary):
    compared = summary["comparisons"]["b"]
    assert compared["gain_by_seed"] == [pytest.approx(2.5)] * 2
    assert compared["gain_interval"] == [pytest.approx(2.5)] * 2
    assert compared["heldout_difference"][0] == pytest.approx(0.3)


@pytest.mark.parametrize(("failing", "row", "seeds"), [([1, 2], "- weak", 1), ([0, 1, 2], "b", 2)])
def test_a_gain_over_nothing_is_left_out_and_the_results_can_be_read_again(failing, row, seeds, tmp_path):
    experiment = load_experiment(str(experiment_file(tmp_path, "[arms.a]\n[arms.b]\nlocal = 8\n"))).part((), seeds)
    records = {
        arm: [run(simulation, [0.2] * 30, 0.5) for simulation in experiment.simulations(arm)] for arm in experiment.arms
    }
    for number in failing:
        records["a"][-1]["nodes"][number]["rounds"]["reward"] = [0.0] * 30
    path = tmp_path / "own.json"
    path.write_text(to_json(summarise(experiment, records)))
    summary = read_results(path, "the test")
    weak = summary["comparisons"]["b"]["roles"]["weak"]
    assert (weak["gain_by_seed"], weak["gain"]) == ([0.0, None][-seeds:], None)
    assert weak["gain_by_horizon"] == [None] * 30
    assert "gain_interval" not in weak
    assert {cells[2] for cells in [*rows(summary)][3:] if cells[0] == row} == {""}
    draw(summary, tmp_path / "own.svg")
    script = runpy.run_path(str(Path(__file__).parents[3] / "scripts/results.py"))
    assert markdown(script["summary_of"](summary)) == markdown(summary)


def test_results_with_a_number_that_json_does_not_have_are_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"gain": float("nan")})


def test_roles_have_figures_of_their_own(summary):
    roles = summary["arms"]["b"]["roles"]
    assert roles["strong"]["cumulative"][0] == pytest.approx(roles["weak"]["cumulative"][0] / 2)


def test_a_role_is_told_whose_rollouts_carried_a_task(summary):
    assert summary["arms"]["b"]["roles"]["weak"]["carried"] == {"x": {"itself": 120, "strong": 40}}


def test_what_attackers_whom_nodes_trust_wrote_has_a_share_of_its_own_in_the_figures_and_the_picture(tmp_path):
    experiment = load_experiment(str(experiment_file(tmp_path, "[arms.a]\n"))).part((), 1)
    attacked = run(experiment.arms["a"], [0.1] * 10, 0.5)
    for member in attacked["nodes"]:
        member["carried"].append(["x", "an attacker", 50])
    summary = summarise(experiment, {"a": [attacked]})
    assert summary["arms"]["a"]["roles"]["weak"]["carried"] == {"x": {"attackers": 100, "itself": 60, "strong": 20}}
    draw_tasks(summary, tmp_path / "tasks.svg")
    assert "attackers" in (tmp_path / "tasks.svg").read_text()


def test_a_task_is_followed_through_the_rounds(summary):
    assert summary["arms"]["b"]["curves"]["heldout_by_task"][0]["x"] == [[0, 0.0], [15, 0.3], [30, 0.6]]


def test_what_is_kept_of_an_experiment_makes_the_same_table_without_its_curves(summary):
    script = runpy.run_path(str(Path(__file__).parents[3] / "scripts/results.py"))
    kept = script["summary_of"](summary)
    assert markdown(kept) == markdown(summary)
    assert "curves" not in json.dumps(kept)
    assert kept["comparisons"]["b"]["peak"] == [30, pytest.approx(2.5)]


@pytest.mark.parametrize("draw", [draw, draw_tasks])
def test_the_same_numbers_draw_the_same_picture(summary, tmp_path, draw):
    for name in ("one.svg", "two.svg"):
        draw(summary, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def sapo_adversary(*arguments):
    """In a process of its own, which may start others."""
    code = "from sapo_adversary.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_small_experiment_runs_once_and_is_drawn(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(
        'title = "t"\nquestion = "q"\nseeds = [1]\nreference = "alone"\nceiling = 0.8\n'
        "[simulation]\nseconds = 20\nfinal_questions = 1\n[[simulation.nodes]]\nlocal = 1\n[arms.alone]\nexternal = 0\n"
    )
    command = ["experiment", str(path), "--output", str(tmp_path)]
    first = json.loads(sapo_adversary(*command, "--jobs", "1", "--json"))
    assert len(first["arms"]["alone"]["curves"]["reward"][0]) == 2
    [record] = (tmp_path / "runs").iterdir()
    written = record.stat().st_mtime_ns
    assert json.loads(sapo_adversary(*command, "--json")) == first
    assert record.stat().st_mtime_ns == written
    assert (tmp_path / "tiny.svg").read_text().startswith("<?xml")
    assert first["versions"]["torch"] == version("torch")
    record.write_text(record.read_text().replace(version("torch"), "1.2.3"))
    assert json.loads(sapo_adversary(*command, "--json"))["versions"]["torch"] == "1.2.3"


def test_only_some_arms_and_seeds_may_be_asked_for():
    part = load_experiment("sapo-table").part(["4/4"], 2)
    assert (list(part.arms), part.seeds, part.compared_with("4/4")) == (["4/4"], (1, 2), None)
    with pytest.raises(LocalError, match="9/9"):
        replace(part).part(["9/9"], None)


def test_an_arm_is_compared_at_its_own_point_of_the_grid(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\n[arms.b]\nlocal = 8\n[grid]\nlearning_rate = [1e-4, 2e-4]\n")
    experiment = load_experiment(str(path))
    assert experiment.compared_with("b, learning_rate 0.0002") == "a, learning_rate 0.0002"
    assert experiment.compared_with("a, learning_rate 0.0002") is None


def test_a_node_that_has_left_has_spent_what_it_spent(tmp_path):
    experiment = load_experiment(str(experiment_file(tmp_path, "[arms.a]\n[arms.b]\nlocal = 8\n")))
    [simulation, *_] = experiment.simulations("a")
    record = run(simulation, [0.9] * 12, 0.6)
    record["nodes"][0] = node(0, [0.0] * 3, 0.0)
    record["timing"]["cpu_seconds"] = [[float(at + 1) for at in range(rounds)] for rounds in (3, 12, 12)]
    figures = summarise(experiment, {"a": [record], "b": [record]})["arms"]["a"]
    assert figures["rounds_to_half"] == [5]
    assert figures["cpu_seconds_to_half"] == [3 + 5 + 5]
    assert figures["tokens_to_half"] == [300 + 500 + 500]


def test_the_command_of_a_part_names_what_it_plays():
    whole = load_experiment("filters-one-out")
    assert whole.command == "sapo-adversary experiment filters-one-out"
    part = whole.part(["4/4, all filters", "4/4, without length"], 2)
    arms = "--arm '4/4, all filters' --arm '4/4, without length'"
    assert part.command == f"sapo-adversary experiment filters-one-out {arms} --seeds 2"


def test_the_command_of_an_experiment_in_a_file_of_ones_own_names_the_path_as_it_was_given(tmp_path, monkeypatch):
    path = experiment_file(tmp_path, "[arms.a]\n")
    assert load_experiment(str(path)).command == f"sapo-adversary experiment {path}"
    monkeypatch.chdir(tmp_path)
    assert load_experiment("own.toml").part((), 1).command == "sapo-adversary experiment own.toml --seeds 1"


def test_the_command_of_an_experiment_on_a_gpu_names_the_device():
    played = load_experiment("smollm2-swarm").part((), 1).on("cuda")
    assert played.command == "sapo-adversary experiment smollm2-swarm --seeds 1 --device cuda"


def test_a_device_that_a_file_names_stays(tmp_path):
    path = experiment_file(tmp_path, "[arms.a]\nstrong = { device = 'mps' }\n")
    devices = {
        on: [node.device for node in load_experiment(str(path)).on(on).arms["a"].nodes] for on in ("cpu", "cuda")
    }
    assert devices == {"cpu": ["mps", "cpu"], "cuda": ["mps", "cuda"]}


def test_runs_on_a_gpu_have_records_of_their_own():
    experiment = load_experiment("smollm2-swarm")
    here, there = (
        {each.digest() for each in on.all_simulations()} for on in (experiment.on("cpu"), experiment.on("cuda"))
    )
    assert here.isdisjoint(there)
    assert here == {each.digest() for each in experiment.all_simulations()}
