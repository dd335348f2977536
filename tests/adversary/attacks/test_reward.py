"""Attacks on rewards: other tasks, exploits of scorers, groups that teach nothing, others' texts."""

import builtins
import json
import time
from functools import cache

import pytest
import trio

from attacked import attacked, poison, refused, violations
from sapo_adversary.ablations import stock
from sapo_adversary.attacks.reward import BURDENS, MARKER, TRICKS, answered, copied_premises
from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec, Simulation
from sapo_adversary.simulator.swarm import simulate
from sapo_node.tasks import build_task, score
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import load_manifest

CATALOGUE = {spec.dataset: spec for name in ("starter", "paper-nine") for spec in load_manifest(name).tasks}

NEVER = 1e6
BELIEVING = ("re-verification", "untrusted class")


@cache
def swarm(name, *without, light=False, joins=0.0):
    """Three nodes that know each other, with two attackers."""
    options = {"light": True} if light else {}
    return attacked(name, honest=3, seconds=30.0, without=without, options=options, joins=joins)


def external(record):
    return sum(sum(node["rounds"]["external"]) for node in record["nodes"])


@pytest.mark.parametrize("name", ["false-claim", "forged-task", "copycat"])
@pytest.mark.slow
def test_wrong_answers_are_rewarded_where_claims_are_believed_and_never_here(name):
    undefended, defended = swarm(name, *BELIEVING), swarm(name)
    assert violations(undefended) > 20
    assert violations(defended) == 0
    assert poison(defended, name) == 0


def test_answers_to_another_question_are_refused_by_their_digest_or_by_their_reward():
    record = swarm("forged-task")
    assert refused(record, "question or answer differs") > 0
    assert refused(record, "false claim") > 0


@pytest.mark.slow
def test_a_copied_text_is_trained_on_where_claims_are_believed_and_never_here():
    undefended, defended = swarm("copycat", *BELIEVING), swarm("copycat")
    assert sum(node["findings"]["copied"] for node in undefended["nodes"]) > 0
    assert sum(node["findings"]["copied"] for node in defended["nodes"]) == 0


@pytest.mark.slow
def test_flat_groups_crowd_out_the_others_where_they_are_kept():
    control, undefended = (
        swarm("flat", joins=NEVER),
        swarm("flat", "zero-advantage groups dropped", "measured by the healthy"),
    )
    assert external(undefended) < 0.7 * external(control)
    assert external(swarm("flat")) >= 0.95 * external(control)


def test_groups_of_hardly_any_mass_leave_honest_ones_half_of_their_weight():
    """They take places. What each group weighs is measured by others."""
    assert honest_mass(swarm("flat", light=True)) >= 0.5 * honest_mass(swarm("flat", joins=NEVER))


def honest_mass(record):
    return sum(node["findings"]["mass"]["honest"] for node in record["nodes"])


@pytest.mark.parametrize("dataset", sorted(CATALOGUE))
def test_no_exploit_earns_anything_from_our_scorers_or_keeps_them_busy(dataset):
    task = build_task(dataset, CATALOGUE[dataset].config, 7)
    exploits = {answered(text) for text in (*TRICKS, *BURDENS, copied_premises(task.prompt))}
    exploits -= {answered(task.answer)}
    began = time.process_time()
    assert not [text for text in exploits if score(task, text)]
    assert time.process_time() - began < 1


def test_a_library_pays_for_copied_premises_and_runs_the_code_in_an_answer():
    def library(dataset, text):
        config = json.dumps(CATALOGUE[dataset].config, sort_keys=True, default=list)
        return stock.library_reward(dataset, config, 7, text)

    spec = CATALOGUE["propositional_logic"]
    prompt = build_task(spec.dataset, spec.config, 7).prompt
    assert library("propositional_logic", answered(copied_premises(prompt)))
    try:
        assert not any(library("binary_matrix", answered(trick)) for trick in TRICKS if MARKER in trick)
        assert hasattr(builtins, MARKER)
    finally:
        if hasattr(builtins, MARKER):
            delattr(builtins, MARKER)


@pytest.mark.slow
def test_tricks_are_paid_for_by_a_librarys_scorers_and_never_here():
    options = {"burdens": False}
    assert violations(exploited(options, without=("own scorers",))) > 0
    assert violations(exploited(options)) == 0
    assert violations(exploited({})) == 0
    if hasattr(builtins, MARKER):
        delattr(builtins, MARKER)


def exploited(options, *, without=()):
    return simulate(
        Simulation(
            "exploits",
            nodes=(NodeSpec(count=3, round_seconds=2.0),),
            swarm="paper-nine",
            seconds=24.0,
            learner="bandit",
            epoch_seconds=20,
            max_rounds=20,
            audited=True,
            attackers=(AttackerSpec("scorer-exploit", count=2, options=options),),
            without=without,
        )
    )


async def test_the_sandbox_answers_every_exploit_with_no_reward_and_is_none_the_worse(nursery: trio.Nursery):
    sandbox = Sandbox(CATALOGUE.values())
    await nursery.start(sandbox.run)
    for dataset, spec in CATALOGUE.items():
        prompt = build_task(dataset, spec.config, 7).prompt
        texts = tuple(answered(text) for text in (*TRICKS, *BURDENS, copied_premises(prompt)))
        right = answered(build_task(dataset, spec.config, 7).answer)
        (scored,) = await sandbox.score([ScoreRequest(dataset, spec.config, 7, tuple(t for t in texts if t != right))])
        assert scored is not None
        assert not any(scored.levels)
    assert not sandbox.failures
    assert not sandbox.restarts
