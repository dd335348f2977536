"""A crowd makes a swarm large: its peers sign real messages, which full nodes receive, check and learn from."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from attacked import refused, violations
from sapo_adversary import scoring
from sapo_adversary.scenarios.scenario import load_scenario
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator import swarm
from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec, Simulation
from sapo_adversary.simulator.swarm import simulate
from sapo_node.tasks import build_task
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import Assignment, LocalError, load_manifest

LIARS = AttackerSpec("false-claim", count=3, acts_every=2.0)
SMALL = Simulation(
    "a small crowd",
    nodes=(NodeSpec(count=3, round_seconds=2.0),),
    seconds=20.0,
    learner="bandit",
    epoch_seconds=20,
    max_rounds=20,
    trusted=False,
    audited=True,
    crowd=12,
    attackers=(LIARS,),
)


def without_timing(record):
    return json.dumps({key: value for key, value in record.items() if key != "timing"}, sort_keys=True)


@pytest.fixture(scope="module")
def record():
    return simulate(SMALL)


def test_the_same_seed_gives_the_same_record_without_anything_remembered(record, monkeypatch):
    monkeypatch.setattr(swarm, "memoised", nullcontext)
    assert without_timing(simulate(SMALL)) == without_timing(record)


def test_full_nodes_train_on_what_the_crowd_signs_and_find_its_claims_true(record):
    full = {node["peer"] for node in record["nodes"]}
    others = {peer for node in record["nodes"] for peer in node["trained"]} - full - {"own"}
    assert len(others) > 3
    assert violations(record) == 0
    assert all("banned" not in node["states"]["last"]["honest"] for node in record["nodes"])


def test_liars_behind_the_forwarder_are_banned_for_what_they_sign(record):
    assert refused(record, "false claim") > 0
    assert any(node["states"]["last"]["false-claim"].get("banned") for node in record["nodes"])


def test_everybody_counts_as_a_peer_of_the_swarm(record):
    [last, *_] = [node["states"]["last"] for node in record["nodes"]]
    assert {role: sum(counts.values()) for role, counts in last.items()} == {"honest": 15, "false-claim": 3}


def test_the_forwarder_passes_on_nothing_whose_bytes_alone_prove_it_wrong():
    spoiled = simulate(replace(SMALL, attackers=(AttackerSpec("forgery", count=2, acts_every=2.0),), seconds=8.0))
    assert refused(spoiled, "signature") == 0
    assert all("banned" not in node["states"]["last"]["honest"] for node in spoiled["nodes"])


def test_a_crowd_of_language_models_is_refused():
    with pytest.raises(LocalError, match="a crowd needs learner = 'bandit'"):
        replace(SMALL, learner="model")


def test_a_scenario_without_a_crowd_keeps_its_digest():
    assert replace(SMALL, crowd=0).digest() != SMALL.digest()
    assert replace(SMALL, crowd=0).digest() == "5d6f990a5429cdc9cba54863c985a2b8042625b4aba2a35b79d8a2165bbd8029"


def test_tasks_that_were_forgotten_are_worked_out_again(monkeypatch):
    monkeypatch.setattr(scoring, "REMEMBERED", 2)
    spec = load_manifest("starter").tasks[0]
    scorer = SharedScorer()
    requests = [ScoreRequest(spec.dataset, spec.config, seed, ("<answer>7</answer>",)) for seed in range(5)]
    scored = [scorer.result(request) for request in requests]
    assert len(scorer.tasks) == 2
    assert [scorer.result(request) for request in requests] == scored


def test_a_task_that_a_node_scored_is_kept_however_many_a_crowd_solves(monkeypatch):
    monkeypatch.setattr(scoring, "REMEMBERED", 4)
    spec = load_manifest("starter").tasks[0]
    scorer = SharedScorer()
    prompt = scorer.result(ScoreRequest(spec.dataset, spec.config, 0, ())).prompt
    for seed in range(1, 20):
        scorer.solve(Assignment(spec, seed))
    assert prompt in scorer.tasks


def test_a_prompt_of_two_seeds_is_kept_until_both_are_forgotten(monkeypatch):
    spec = load_manifest("starter").tasks[0]
    by_prompt = {}
    for seed in range(10_000):
        prompt = build_task(spec.dataset, spec.config, seed).prompt
        if prompt in by_prompt:
            break
        by_prompt[prompt] = seed
    monkeypatch.setattr(scoring, "REMEMBERED", 2)
    scorer = SharedScorer()
    other = seed + 1
    for each in (by_prompt[prompt], seed, by_prompt[prompt], other):
        scorer.result(ScoreRequest(spec.dataset, spec.config, each, ()))
    assert prompt in scorer.tasks
    scorer.result(ScoreRequest(spec.dataset, spec.config, other + 1, ()))
    assert prompt not in scorer.tasks


def test_the_scenario_of_scale_is_a_thousand_peers_of_whom_a_quarter_attack():
    simulation = load_scenario("scale").simulation("defended")
    honest, attackers = len(simulation.members) + simulation.crowd, sum(band.count for band in simulation.attackers)
    assert (honest, attackers) == (750, 250)
    assert simulation.nodes[0].rounds(simulation.seconds) == 500
    assert load_scenario("scale").simulation("alone").crowd == 0
