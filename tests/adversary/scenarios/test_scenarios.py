"""From an attack to a verdict: what is asked, what is played, what is judged, and how it is shown."""

import csv
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from run_records import record
from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.cli.main import main
from sapo_adversary.scenarios.matrices import MATRICES, names_of, scenarios_of
from sapo_adversary.scenarios.outcome import COLUMNS, outcome_of, rows
from sapo_adversary.scenarios.page import page
from sapo_adversary.scenarios.play import play
from sapo_adversary.scenarios.scenario import (
    HONEST,
    SHARE,
    Bound,
    attackers_at,
    load_scenario,
    promises,
    scenario_names,
)
from sapo_adversary.scenarios.table import markdown
from sapo_adversary.simulator.engine import ThisMachine
from sapo_adversary.simulator.runs import record_path
from sapo_adversary.simulator.versions import versions_now
from sapo_protocol import LocalError


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_of_the_package_can_be_read_and_asks_for_harm_or_says_what_holds(name):
    scenario = load_scenario(name)
    assert scenario.title
    assert scenario.holds or scenario.harm
    assert bool(scenario.harm) == bool(scenario.simulation("undefended").without)


def test_every_attack_has_a_threat_and_a_scenario():
    assert {load_scenario(name).attack for name in scenario_names()} - {""} == set(THREATS)
    for kind in THREATS.values():
        assert len(kind.threat()) > 20


def test_arms_differ_in_the_attack_and_in_what_is_left_out_alone():
    scenario = load_scenario("false-claim")
    control, undefended, defended = (scenario.simulation(arm) for arm in ("control", "undefended", "defended"))
    assert replace(undefended, name="", without=()) == replace(defended, name="")
    assert replace(defended, name="", attackers=()) == replace(control, name="")
    assert scenario.simulation("alone").nodes[0].external == 0


def test_real_models_play_in_fewer_nodes_and_are_held_to_the_same_promises():
    scenario = replace(load_scenario("false-claim"), scale="models")
    played = scenario.simulation("defended")
    assert (played.learner, len(played.members), played.attackers[0].count) == ("model", 6, 2)
    assert scenario.bounds("defended", SHARE) == promises(SHARE)
    assert not scenario.bounds("undefended", SHARE)


def test_no_matrix_needs_a_model_that_must_be_fetched():
    assert load_scenario("poison-text-smollm2").needs_fetch
    for kind in MATRICES:
        assert not any(each.needs_fetch for each in scenarios_of(kind, names_of(kind)))


def test_scenarios_in_the_same_swarm_share_their_control(tmp_path):
    other = tmp_path / "other.toml"
    other.write_text('title = "t"\nattack = "false-claim"\nundefended = ["signatures"]\n')
    controls = [load_scenario(name).simulation("control").digest() for name in ("false-claim", str(other))]
    assert controls[0] == controls[1]


@pytest.mark.parametrize(("share", "count"), [(0.0625, 1), (0.125, 2), (0.25, 4), (0.5, 12), (0.75, 36)])
def test_shares_are_of_all_peers(share, count):
    assert attackers_at(share, HONEST) == count


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('attack = "none"', "no attack 'none'"),
        ('attack = "false-claim"\nextra = 1', "no 'extra'"),
        ('attack = "false-claim"\nbeside = ["luck"]', "no attack 'luck'"),
        ('attack = "false-claim"\n[harm]\nbanned = { above = 1 }', "at_least, at_most or both"),
        (
            'attack = "false-claim"\n[holds]\n"refused.signatur" = { at_most = 0 }',
            "no metric 'refused.signatur'; did you mean refused.signature?",
        ),
        ('attack = "false-claim"\n[simulation]\nnonsense = 1', "no 'nonsense'"),
        ('attack = "false-claim"\n[options]\nnonsense = 1', "options of false-claim"),
        ('attack = "false-claim"\n[attackers]\noptions = {}', "attackers has no 'options'; write them at the top"),
        ('attack = "false-claim"\n[attackers]\nattack = "flood"', "attackers has no 'attack'; write it at the top"),
        ('attack = "false-claim"\n[attackers]\nnonsense = 1', "no 'nonsense'"),
        ('attack = "false-claim"\n[[simulation.nodes]]\nlocal = 1', "simulation has no 'nodes'; write them as [node]"),
        ('attack = "false-claim"\n[[simulation.attackers]]\nattack = "x"', "simulation has no 'attackers'; write them"),
        ('attack = "false-claim"\n[simulation]\nwithout = ["quotas"]', "simulation has no 'without'; write the"),
        ('attack = "false-claim"\n[harm]\nbanned = { at_most = nan }', "each a finite number"),
        (
            'attack = "false-claim"\n[simulation]\naudited = false',
            "simulation has no 'audited'; every run of a scenario",
        ),
        ('attack = "false-claim"\n[simulation]\nloss = 2.0', "loss is 2; give 0 to 1"),
        ('attack = "false-claim"\n[harm]\nbanned = 3', "banned in harm of mine must be a table, not 3"),
        ('attack = "false-claim"\n[node]\nfilters = ["luck"]', "value 1 in filters of node of mine must be 'one"),
        ('attack = "false-claim"\nkinds = { local = 1 }', "kinds of mine must be a list, not a table"),
        ('attack = "false-claim"\n[node]\ncount = 0', "give it nodes and seconds to run"),
        ('attack = "false-claim"\n[simulation]\ninline_bytes = 1', "inline_bytes needs pulls = true and no crowd"),
        ('attack = "false-claim"\n[simulation]\nseed = 3', "simulation has no 'seed'; give --seeds"),
        ('attack = "false-claim"\n[simulation]\nname = "x"', "simulation has no 'name'; the name of the file"),
        ('attack = "false-claim"\n[[kinds]]\ncount = 3', "kinds has no 'count'; write the number of all nodes"),
        ('attack = "false-claim"\n[node]\ncount = 1\n[[kinds]]\n[[kinds]]\nnonsense = 1', "no 'nonsense'"),
        ("[attackers]\nlinks = 1", "attackers has no effect without an attack"),
        ("[options]\npatient = true", "options has no effect without an attack"),
        ("keys = 3", "keys has no effect without an attack"),
        ('beside = ["flat"]', "beside has no effect without an attack"),
    ],
)
def test_a_scenario_with_a_mistake_is_refused_with_what_is_wrong(tmp_path, line, says):
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "t"\nundefended = ["re-verification"]\n{line}\n')
    with pytest.raises(LocalError, match=re.escape(says)):
        load_scenario(str(path)).simulation("defended")


def test_harm_without_an_arm_that_could_show_it_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "t"\nattack = "false-claim"\n[harm]\nreward_lost = { at_least = 0.1 }\n')
    with pytest.raises(LocalError, match="name the defence in undefended"):
        load_scenario(str(path))


def test_a_defence_that_is_none_is_refused_by_name(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "t"\nattack = "false-claim"\nundefended = ["luck"]\n')
    with pytest.raises(LocalError, match="no defence 'luck'"):
        load_scenario(str(path))


def test_the_more_attackers_the_more_may_be_lost_but_never_more_than_alone():
    assert promises(0.25)["reward_lost"] == Bound(at_most=0.02)
    assert promises(0.5)["reward_lost"] == Bound(at_most=0.05)
    assert "reward_lost" not in promises(0.75)
    assert promises(0.75)["below_alone"] == Bound(at_most=0.02)


def test_what_a_scenario_asks_in_place_of_a_promise_is_asked_at_every_share():
    asked = load_scenario("collusion").bounds("defended", 0.5)
    assert asked["poison_share"] == Bound(at_most=0.5)
    assert asked.keys() == promises(0.5).keys()


def test_bounds_are_met_at_their_ends():
    assert Bound(at_least=1, at_most=2).met_by(1)
    assert Bound(at_least=1, at_most=2).met_by(2)
    assert not Bound(at_least=1, at_most=2).met_by(2.01)
    assert str(Bound(at_least=1, at_most=2)) == "at least 1 and at most 2"


FALSE_CLAIMS = replace(load_scenario("false-claim"), scale="quick")
"""In a small swarm."""


@pytest.fixture(scope="module")
def outcome():
    """The outcome of crafted runs, in whose undefended arm each node trains on 10 false groups."""
    runs = {arm: [record(0.5)] for arm in FALSE_CLAIMS.arms}
    return outcome_of(FALSE_CLAIMS, SHARE, [1], {**runs, "undefended": [record(0.5, violations=10)]})


@pytest.mark.slow
def test_a_defended_swarm_trains_on_nothing_false_where_an_undefended_one_does(tmp_path):
    [played] = play(
        [(FALSE_CLAIMS, SHARE)], [1], tmp_path, policies=tmp_path, engine=ThisMachine(1), console=Console(quiet=True)
    )
    assert played.mean("defended", "violations") == 0
    assert played.mean("undefended", "violations") > 10
    assert played.held


def test_every_metric_has_a_row_with_its_verdict(outcome):
    table = [dict(zip(COLUMNS, row, strict=True)) for row in rows(outcome)]
    [violations] = [row for row in table if (row["arm"], row["metric"]) == ("defended", "violations")]
    assert violations == {
        "attack": "false-claim",
        "seed": 1,
        "share": 0.25,
        "arm": "defended",
        "metric": "violations",
        "value": 0,
        "verdict": "met",
        "attackers": 2,
        "strangers": False,
        "without": "",
    }


def test_an_outcome_that_misses_a_bound_is_not_held(outcome):
    asked = replace(outcome.scenario, scale="full", holds={"banned": Bound(at_least=2)})
    stricter = replace(outcome, scenario=asked)
    assert not stricter.held
    assert ("banned", False) in [(verdict.metric, verdict.met) for verdict in stricter.verdicts()]


def test_an_attack_of_which_no_harm_was_asked_is_neither_harmful_nor_harmless(outcome):
    assert outcome.harmful is None
    asked = replace(outcome.scenario, scale="full", harm={"violations": Bound(at_least=10)})
    assert replace(outcome, scenario=asked).harmful is True
    asked = replace(asked, harm={"violations": Bound(at_least=10_000)})
    assert replace(outcome, scenario=asked).harmful is False


def test_the_table_says_of_an_attack_that_it_was_weaker_than_asked(outcome):
    asked = replace(outcome.scenario, scale="full", harm={"violations": Bound(at_least=10_000)})
    told = {**outcome.as_dict(), "held": True}
    told["verdicts"] = [
        each for each in replace(outcome, scenario=asked).as_dict()["verdicts"] if "viol" in each["metric"]
    ]
    assert "**(attack weaker than asked: violations)**" in markdown({"outcomes": [told]})


def test_a_swarm_without_an_attacker_has_no_row_among_the_threats(outcome):
    told = outcome.as_dict()
    assert markdown({"outcomes": [told, {**told, "attack": ""}]}) == markdown({"outcomes": [told]})


def test_the_page_of_one_outcome_names_the_command_that_made_it(outcome):
    results = {"version": "1", "about": {}, "outcomes": [outcome.as_dict()]}
    drawn = page({**results, "command": "sapo-adversary run my/own.toml --without luck"})
    assert "Again with <code>sapo-adversary run my/own.toml --without luck</code>" in drawn


def test_the_page_leaves_the_cell_of_a_metric_empty_that_no_run_tells(outcome):
    assert outcome.by_seed("undefended", "rounds_to_ban") == []
    drawn = page({"command": "x", "version": "1", "about": {}, "outcomes": [outcome.as_dict()]})
    assert re.search(r"rounds_to_ban\s*<td><td>", drawn)


def test_the_page_stands_alone_and_shows_every_verdict(outcome):
    drawn = page({"command": "sapo-adversary run x", "version": "1", "about": {}, "outcomes": [outcome.as_dict()]})
    assert "<svg" in drawn
    assert "false-claim" in drawn
    assert "2 of 8 peers attack" in drawn
    assert not re.search(r"(src|href)=\"(?!#|http://www.w3.org)", drawn)


def test_what_is_kept_of_a_matrix_makes_the_same_table_without_its_curves(outcome):
    script = runpy.run_path(str(Path(__file__).parents[3] / "scripts/results.py"))
    results = {"command": "x", "version": "1", "about": {}, "outcomes": [outcome.as_dict()]}
    kept = script["summary_of"](results)
    assert markdown(kept) == markdown(results)
    assert "false-claim" in markdown(kept)
    assert "curves" not in json.dumps(kept)


def test_text_of_a_result_cannot_become_markup(outcome):
    table = {**outcome.as_dict(), "title": "<script>"}
    assert "<script>" not in page({"command": "x", "version": "1", "about": {}, "outcomes": [table]})


def sapo_adversary(*arguments):
    code = "from sapo_adversary.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_list_is_an_array_for_scripts(run_here):
    _, told = run_here(main, "list", "--json")
    listed = json.loads(told.out)
    assert {"id", "name", "layer", "threat"} <= listed[0].keys()
    assert "false-claim" in [each["id"] for each in listed]


def test_a_share_of_attackers_whose_number_is_fixed_is_refused(run_here):
    code, told = run_here(main, "run", "hollow", "--share", 0.5)
    assert code == 2
    assert "leave --share away" in told.err


@pytest.mark.parametrize("option", [("--keys", 3), ("--share", 0.5)])
def test_an_option_about_attackers_is_refused_where_nobody_attacks(run_here, option):
    code, told = run_here(main, "run", "strangers", *option)
    assert code == 2
    assert "nobody attacks in strangers: leave --keys and --share away" in told.err


@pytest.mark.parametrize("defence", ["n-gram filter", "min-token-prob filter", "scored mesh"])
def test_a_defence_that_nodes_of_a_scenario_do_not_have_is_refused_since_both_arms_would_be_one(
    run_here, tmp_path, defence
):
    code, told = run_here(main, "run", "false-claim", "--without", defence, "--output", tmp_path)
    assert code == 2
    assert f"nodes of false-claim have no {defence} to go without" in told.err
    assert not [*tmp_path.iterdir()]


def test_a_scenario_that_is_none_is_one_line(run_here):
    code, told = run_here(main, "run", "nonsense")
    assert code == 1
    assert told.err.startswith("error: no scenario 'nonsense'")


def test_a_run_writes_a_page_a_table_and_json_and_exits_by_the_verdict(tmp_path, run_here):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'title = "Mine"\nattack = "false-claim"\nundefended = ["re-verification"]\n'
        "[simulation]\nseconds = 20\n[node]\ncount = 2\n[holds]\nrounds_to_ban = { at_least = 1000 }\n"
        + "".join(f"{name} = {{ at_most = 2 }}\n" for name in ("reward_lost", "heldout_lost", "below_alone"))
    )
    done = sapo_adversary("run", mine, "--output", tmp_path, "--jobs", 1)
    assert done.returncode == 1, done.stderr
    assert "rounds_to_ban" in done.stdout
    assert json.loads((tmp_path / "mine.json").read_text())["outcomes"][0]["held"] is False
    assert tuple(next(csv.reader(io.StringIO((tmp_path / "mine.csv").read_text())))) == COLUMNS
    drawn = (tmp_path / "mine.html").read_text()
    _, told = run_here(main, "report", tmp_path / "mine.json")
    assert told.out.strip() == str(tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == drawn


def test_results_tell_of_runs_that_were_played_with_other_code(tmp_path, run_here):
    def judged_again():
        command = (
            "matrix",
            "quick",
            "--only",
            "false-claim",
            "--recorded",
            "--records",
            tmp_path,
            "--output",
            tmp_path,
        )
        _, told = run_here(main, *command)
        [found] = json.loads((tmp_path / "quick.json").read_text())["outcomes"]
        return told.err, found["versions"]["code"]

    now = versions_now()["code"]
    first, *others = [FALSE_CLAIMS.simulation(arm) for arm in FALSE_CLAIMS.arms]

    def write(run, code):
        versions = {"versions": {**versions_now(), "code": code}}
        record_path(tmp_path, run).write_text(json.dumps(record(0.5) | versions | {"digest": run.digest()}))

    for each in (first, *others):
        write(each, now)
    told, code = judged_again()
    assert ("played earlier" in told, code) == (False, now)
    write(first, "0123456789ab")
    told, code = judged_again()
    assert code.split(", ") == sorted([now, "0123456789ab"])
    assert f"code {code} (now {now})" in told


@pytest.mark.slow
def test_a_run_without_another_defence_and_at_another_share_has_files_of_its_own_and_asks_no_harm(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'title = "Mine"\nattack = "false-claim"\nundefended = ["re-verification"]\n'
        "[simulation]\nseconds = 20\n[node]\ncount = 2\n[harm]\nreward_lost = { at_least = 2 }\n"
        "[holds]\nbanned = { at_least = 9 }\n"
    )
    options = ["--share", "0.5", "--seeds", "2", "--without", "costly lies"]
    done = sapo_adversary("run", mine, "--output", tmp_path, "--jobs", 1, *options)
    assert "are asked at a share of 0.25 only" in done.stderr
    results = json.loads((tmp_path / "mine-share-0.5-without-costly-lies.json").read_text())
    assert shlex.split(results["command"]) == ["sapo-adversary", "run", str(mine), *options]
    [outcome] = results["outcomes"]
    assert outcome["without"] == ["costly lies"]
    assert {each["arm"] for each in outcome["verdicts"]} == {"defended"}
