"""A simulated swarm is a function of its settings: real parts, virtual time, the same record every time."""

import json
import re
from dataclasses import replace
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from attacked import attacked, poison, refused, violations
from sapo_adversary.scenarios.scenario import load_scenario
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.learners import learner_for
from sapo_adversary.simulator.runs import load_record, record_path
from sapo_adversary.simulator.simulation import NodeSpec, Simulation, simulation_from
from sapo_adversary.simulator.swarm import identity_of, simulate
from sapo_adversary.simulator.versions import PACKAGES
from sapo_node.groups.messages import RequestError, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.tasks import build_task, score, task_digest
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import LocalError, load_manifest

SMALL = Simulation("small", (NodeSpec(count=2, local=2, external=2),), seed=7, seconds=30, groups=4, final_questions=1)

FEW_PROMPTS = """
[[tasks]]
dataset = "fraction_simplification"
weight = 1
config = { min_value = 1, max_value = 4, min_factor = 2, max_factor = 3, styles = ["plain"] }
"""
"""A task with twelve prompts; 100 questions are all of them."""


def without_timing(record):
    return json.dumps({key: value for key, value in record.items() if key != "timing"}, sort_keys=True)


@pytest.fixture(scope="module")
def record():
    return simulate(SMALL)


def test_the_same_simulation_gives_the_same_record_byte_for_byte(record):
    assert without_timing(simulate(SMALL)) == without_timing(record)


def test_every_node_plays_its_rounds_and_is_measured_before_and_after(record):
    for node in record["nodes"]:
        assert {len(column) for column in node["rounds"].values()} == {3}
        assert [each["round"] for each in node["heldout"]] == [0, 3]


def test_nodes_train_on_each_other(record):
    peers = {node["peer"] for node in record["nodes"]}
    for node in record["nodes"]:
        if node["trained"].keys() - {"own"}:
            assert node["trained"].keys() - {"own"} <= peers - {node["peer"]}
    assert any(sum(node["rounds"]["external"]) for node in record["nodes"])


def test_arms_of_one_seed_answer_the_same_questions_alike_in_their_first_round():
    alone = simulate(replace(SMALL, nodes=(NodeSpec(count=2, local=2, external=0),), seconds=10))
    shared = simulate(replace(SMALL, seconds=10))
    assert [node["rounds"]["reward"] for node in alone["nodes"]] == [
        node["rounds"]["reward"] for node in shared["nodes"]
    ]


def test_the_averaged_weights_are_measured_where_a_simulation_says_so(record):
    [measured] = simulate(replace(SMALL, nodes=(NodeSpec(local=2, external=0),), averaged=True))["nodes"]
    assert all(0 <= each["averaged"] <= 1 for each in measured["heldout"])
    assert "averaged" not in record["nodes"][0]["heldout"][0]


@pytest.mark.slow
def test_nodes_fetch_the_bodies_of_what_attackers_publish():
    record = attacked("sybil", honest=9, round_seconds=10.0, epoch_seconds=40, inline_bytes=1)
    assert violations(record) == 0
    assert poison(record, "sybil") > 0


@pytest.mark.slow
def test_a_simulated_learner_measures_its_averaged_weights_or_those_that_train():
    scorer = SharedScorer()
    policy = learner_for(SMALL, load_manifest(SMALL.swarm), 0, Path("unused"), scorer)
    for value in policy._trainer.average.values():
        value.zero_()
    assert sum(policy.examine(scorer, 32, averaged=True).values()) == 0 < sum(policy.examine(scorer, 32).values())


@pytest.mark.parametrize(("settings", "rate"), [({}, 1e-4), ({"decay_rounds": 1}, 5e-5)])
async def test_the_learning_rate_of_a_simulated_node_decays_where_its_specification_says_so(
    settings, rate, autojump_clock
):
    simulation = replace(SMALL, nodes=(NodeSpec(**settings),))
    policy = learner_for(simulation, load_manifest(simulation.swarm), 0, Path("unused"), SharedScorer())
    assert (await policy.train(TrainRequest(1, ()))).learning_rate == rate


def test_a_node_of_half_the_speed_plays_half_the_rounds():
    assert NodeSpec(round_seconds=20).rounds(60) == 3
    assert NodeSpec(round_seconds=10, joins=20, leaves=50).rounds(60) == 3
    assert NodeSpec(round_seconds=10, leaves=0).rounds(60) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"seconds": 60, "nodes": [{"joins": 100}]},
        {"seconds": 60, "nodes": [{"joins": 30, "leaves": 10}]},
        {"seconds": 60, "nodes": [{"count": 2}, {"role": "late", "joins": 55}]},
        {"seconds": 60, "nodes": [{"leaves": 0}]},
        {"seconds": 9, "nodes": [{"count": 2}]},
    ],
)
def test_a_node_that_would_play_no_round_is_refused_by_its_name(settings):
    name = settings["nodes"][-1].get("role", "node 1")
    with pytest.raises(LocalError, match=f"{name} would play no round; give at least round_seconds, 10, between"):
        simulation_from({"name": "short", **settings})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"final_questions": 0}, "final_questions is 0; give more than 0"),
        ({"eval_every": 10, "examine_questions": 0}, "examine_questions is 0; give more than 0"),
    ],
)
def test_a_measurement_without_questions_is_refused(settings, says):
    with pytest.raises(LocalError, match=says):
        replace(SMALL, **settings)


def test_questions_of_a_measurement_that_is_not_made_may_be_none():
    assert replace(SMALL, examine_questions=0).heldout_prompts == 1


def test_attackers_that_leave_at_once_send_no_more():
    small = {"honest": 2, "seconds": 12.0}
    acted = [refused(attacked("forgery", leaves=leaves, **small), "signature") for leaves in (0.0, None)]
    assert acted[0] < acted[1] / 4


def test_nodes_may_join_late_and_leave_early():
    late = (NodeSpec(local=1, external=1), NodeSpec(local=1, external=1, joins=10, leaves=20))
    first, second = simulate(replace(SMALL, nodes=late, seconds=30))["nodes"]
    assert (len(first["rounds"]["reward"]), len(second["rounds"]["reward"])) == (3, 1)


@pytest.mark.parametrize("control", ["replay", "filter", "oversample"])
def test_a_control_trains_alone(control):
    spec = NodeSpec(local=2, external=0, control=control)
    (node,) = simulate(replace(SMALL, nodes=(spec,), seconds=20))["nodes"]
    assert node["trained"].keys() <= {"own"}
    assert len(node["rounds"]["reward"]) == 2


@pytest.mark.parametrize(("questions", "trains"), [(1, True), (100, False)])
@pytest.mark.parametrize(
    "spec", [NodeSpec(count=2, local=2, external=2), NodeSpec(local=2, external=0, control="oversample")]
)
@pytest.mark.slow
def test_a_simulated_node_trains_on_no_prompt_that_it_is_measured_with(spec, questions, trains, tmp_path):
    starter = (resources.files("sapo_protocol") / "manifests/starter.toml").read_text("utf-8")
    few = tmp_path / "few.toml"
    few.write_text(f"{starter.partition('[[tasks]]')[0]}{FEW_PROMPTS}")
    simulation = replace(SMALL, swarm=str(few), nodes=(spec,), final_questions=questions, seconds=20)
    assert any(sum(n["rounds"]["grad_norm"]) > 0 for n in simulate(simulation)["nodes"]) is trains


def test_oversampling_pays_for_what_it_generates():
    spent = [
        simulate(replace(SMALL, nodes=(NodeSpec(local=2, external=0, control=control),), seconds=10))["nodes"][0][
            "rounds"
        ]["generated_tokens"][-1]
        for control in ("", "oversample")
    ]
    assert spent[1] > 3 * spent[0]


def test_the_shared_scorer_says_what_tasks_and_scorers_say():
    spec = load_manifest("starter").tasks[0]
    task = build_task(spec.dataset, spec.config, 5)
    texts = (f"so <answer>{task.answer}</answer>", "no idea", f"so <answer>{task.answer}</answer>")
    scorer = SharedScorer()
    for _ in range(2):
        scored = scorer.result(ScoreRequest(spec.dataset, spec.config, 5, texts))
        assert scored.levels == tuple(score(task, text) for text in texts) == (1, 0, 1)
        assert scored.digest == task_digest(task.prompt, task.answer)


def test_a_simulation_survives_its_own_record(record):
    assert simulation_from(record["scenario"]) == SMALL
    assert record["digest"] == SMALL.digest()


def test_a_record_says_with_which_versions_and_which_code_it_was_played(record):
    code = record["versions"]["code"]
    assert record["versions"] == {**{package: version(package) for package in PACKAGES}, "code": code}
    assert re.fullmatch("[0-9a-f]{12}", code)


def test_a_digest_changes_with_any_number_and_not_with_the_name():
    assert replace(SMALL, name="other").digest() == SMALL.digest()
    others = [replace(SMALL, seed=8), replace(SMALL, seconds=40), replace(SMALL, nodes=(NodeSpec(count=4),))]
    assert len({each.digest() for each in [SMALL, *others]}) == 4


def test_a_digest_changes_with_the_file_of_a_swarm_and_not_with_its_path(tmp_path):
    mine, moved = tmp_path / "mine.toml", tmp_path / "moved.toml"
    starter = (resources.files("sapo_protocol") / "manifests/starter.toml").read_text("utf-8")
    mine.write_text(starter)
    moved.write_text(starter)
    before = replace(SMALL, swarm=str(mine)).digest()
    assert replace(SMALL, swarm=str(moved)).digest() == before
    mine.write_text(starter.replace("max_rounds = 2400", "max_rounds = 1200"))
    assert replace(SMALL, swarm=str(mine)).digest() != before


def test_the_digest_of_a_swarm_that_is_not_there_says_which_there_are():
    with pytest.raises(LocalError, match="no manifest 'startr': give one of interop, "):
        replace(SMALL, swarm="startr").digest()


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("false-claim", "e08d6216d9ca55d78d71de3fb413cd76c015f2ba8eb25db67d0e7f1b9a5844cd"),
        ("scorer-exploit", "aa6bcd07f23b1c9ef5dcbf85d3dfe5ddd30bfb6254d2d970129f1063ac5ef6e9"),
    ],
)
def test_the_digests_of_shipped_scenarios_are_those_of_the_kept_records(name, digest):
    assert load_scenario(name).simulation("defended").digest() == digest


def test_filters_that_do_nothing_leave_a_digest_as_it_is():
    def digest(filters, without=(), external=4):
        node = NodeSpec(filters=filters, external=external)
        return replace(SMALL, nodes=(node,), without=without).digest()

    assert digest(("equation",), without=("equation filter", "length filter")) == digest(())
    assert digest(("equation",), external=0) == digest((), external=0)
    assert digest(("equation",)) != digest(())


def test_keys_depend_on_seed_and_number_alone():
    assert identity_of(SMALL, 1).peer_id == identity_of(replace(SMALL, seconds=99), 1).peer_id
    assert identity_of(SMALL, 1).peer_id != identity_of(replace(SMALL, seed=8), 1).peer_id


def test_an_unknown_key_of_a_simulation_is_refused_and_named():
    with pytest.raises(LocalError, match="speed"):
        simulation_from({"name": "bad", "seconds": 10, "speed": 3, "nodes": [{"count": 2}]})


def test_a_simulation_is_made_from_a_table():
    simulation = simulation_from({"name": "pair", "seconds": 10, "nodes": [{"count": 2, "external": "auto"}]})
    assert (simulation.name, len(simulation.members), simulation.members[0].external) == ("pair", 2, "auto")


def test_a_run_that_is_not_there_says_so(tmp_path):
    with pytest.raises(LocalError, match="run it first"):
        load_record(tmp_path, SMALL)


def test_the_record_of_another_run_is_refused_by_its_file(record, tmp_path):
    other = replace(SMALL, seed=8)
    for simulation in (SMALL, other):
        record_path(tmp_path, simulation).write_text(json.dumps(record))
    assert load_record(tmp_path, SMALL)["digest"] == SMALL.digest()
    with pytest.raises(LocalError, match=f"{record_path(tmp_path, other)} is not the record of small, seed 8; remove"):
        load_record(tmp_path, other)


def test_a_simulation_leaves_the_arithmetic_of_its_process_as_it_was():
    before = torch.get_num_threads()
    simulate(replace(SMALL, nodes=(NodeSpec(local=1, external=0),), seconds=10))
    assert torch.get_num_threads() == before
    assert float(np.float32(1e-40) * np.float32(0.5)) > 0


@pytest.mark.parametrize("learner", ["bandit", "model"])
async def test_a_simulated_learner_goes_back_to_either_of_its_last_two_checkpoints(learner, autojump_clock):
    simulation = replace(SMALL, learner=learner)
    manifest, scorer = load_manifest(simulation.swarm), SharedScorer()
    policy = learner_for(simulation, manifest, 0, Path("unused"), scorer)
    task = scorer.result(ScoreRequest(manifest.tasks[0].dataset, manifest.tasks[0].config, 1, ()))

    async def train(step):
        texts = (f"<answer>{scorer.tasks[task.prompt].answer}</answer>", "no")
        completions = tuple(Sampled(text, "stop") for text in texts)
        group = TrainGroup("external", task.prompt, 1.0, (0.7, -0.7), completions)
        await policy.train(TrainRequest(step, (group,)))

    async def shown():
        return policy.examine(scorer, 1), await policy.generate(
            [Prompt(task.prompt)], completions=8, max_tokens=20, seed=1
        )

    seen = [await shown()]
    for step in (1, 2, 3):
        await train(step)
        await policy.checkpoint()
        seen.append(await shown())
    await train(4)
    for step in (3, 2):
        await policy.restore(step)
        assert (policy.step, await shown()) == (step, seen[step])
    with pytest.raises(RequestError, match="no checkpoint of step 1"):
        await policy.restore(1)
    await train(3)
    assert await shown() == seen[3]
