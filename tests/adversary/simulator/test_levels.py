"""Swarms whose tasks have levels: the stand-in learner, honest claims, and the attack that sends parts."""

import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.catalogue import ATTACKS
from sapo_adversary.attacks.kit import Key, Kit
from sapo_adversary.scoring import SharedScorer
from sapo_adversary.simulator.bandit import START, START_PART, Bandit
from sapo_adversary.simulator.simulation import NodeSpec, Simulation
from sapo_adversary.simulator.swarm import manifest_of, simulate
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled, TrainGroup, TrainRequest
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import assign, decode_body, open_message

SMALL = Simulation(
    "levels",
    (NodeSpec(count=2, round_seconds=2.0),),
    seconds=20,
    learner="bandit",
    audited=True,
    levels={"spell_backward": 4},
)
MANIFEST = manifest_of(SMALL)
[SPEC] = [spec for spec in MANIFEST.tasks if spec.dataset == "spell_backward"]


@pytest.fixture
def scorer():
    return SharedScorer()


@pytest.fixture
def bandit(scorer):
    return Bandit(SMALL, MANIFEST, 0, scorer)


def shares(bandit):
    return bandit._shares("spell_backward")


def test_the_levels_of_a_simulation_are_those_of_its_manifest():
    assert SPEC.levels == 4
    assert {spec.levels for spec in MANIFEST.tasks if spec != SPEC} == {1}


def test_the_stand_in_earns_parts_at_first(bandit):
    assert shares(bandit) == pytest.approx({"correct": START, "part": START_PART})


@pytest.mark.parametrize(("levels", "kind"), [((4, 0, 0, 0), "correct"), ((3, 0, 0, 0), "part")])
async def test_the_stand_in_learns_the_kind_that_its_groups_reward_most(bandit, scorer, levels, kind, autojump_clock):
    task = scorer.result(ScoreRequest("spell_backward", SPEC.config, 5, ()))
    answer = scorer.tasks[task.prompt].answer
    said = {4: answer, 3: answer[:-1], 0: "?"}
    completions = tuple(Sampled(f"<answer>{said[level]}</answer>", "stop", (1,)) for level in levels)
    group = TrainGroup("local", task.prompt, 1.0, local_advantages(Levels(levels, 4)), completions)
    before = shares(bandit)
    await bandit.train(TrainRequest(1, (group,)))
    gained = {each: share - before[each] for each, share in shares(bandit).items()}
    assert max(gained, key=gained.get) == kind
    assert gained[kind] > 0


def test_no_claim_of_honest_nodes_is_false():
    nodes = simulate(SMALL)["nodes"]
    assert all("false claim" not in node["refused"] for node in nodes)
    assert sum(node["trained"]["own"]["groups"] for node in nodes) > 0


@pytest.mark.parametrize("correct", [0, 1])
def test_the_claims_of_poison_parts_are_true_and_half_of_them_are_parts(scorer, correct):
    private = Ed25519PrivateKey.from_private_bytes(bytes(32))
    key = Key(private.public_key().public_bytes_raw(), private.sign)
    kit = Kit(replace(MANIFEST, tasks=(SPEC,)), [key], scorer.solve, random.Random(1))
    [packet] = ATTACKS["poison-parts"](kit, correct=correct).act(key, 5)
    rollout = open_message(packet.data, kit.manifest)
    for k, (group, body) in enumerate(zip(rollout.header.groups, rollout.bodies, strict=True)):
        task = assign(kit.manifest, key.issuer, 5, 0, k)
        texts = tuple(each.text for each in decode_body(body, kit.manifest).completions)
        asked = ScoreRequest(task.spec.dataset, task.spec.config, task.seed, texts, levels=4)
        assert group.claims == scorer.result(asked).levels
        assert group.claims.count(4) == correct
        assert sum(2 <= level < 4 for level in group.claims) == 4 - correct
