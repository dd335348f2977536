"""A node whose own completions teach it nothing says so once, and says what may help."""

import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.config import Config
from sapo_node.app.node import build_node
from sapo_node.app.run import run_node
from sapo_node.groups.messages import GroupReport, Refusal
from sapo_node.observability.tasks import MAX_QUIET_GROUPS
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.keys import Identity
from swarm_parts import KnowingScorer, Oracle

ROUNDS = MAX_QUIET_GROUPS // 4


class CutOff(Oracle):
    """Never comes to an answer."""

    async def generate(self, prompts, **settings):
        groups = await super().generate(prompts, **settings)
        return [tuple(replace(each, finish="length") for each in group) for group in groups]

    async def train(self, *request, **settings):
        return replace(await super().train(*request, **settings), truncated=1.0)


class CutByBytes(CutOff):
    """Writes more than the swarm keeps."""

    async def train(self, *request, **settings):
        return replace(await super().train(*request, **settings), over_bytes=1.0)


class WithoutRoom(Oracle):
    """Has no room for its prompts, and cuts the completions of the others."""

    async def train(self, *request, **settings):
        report = await super().train(*request, **settings)
        [first, *others] = report.groups
        groups = {first: GroupReport(tokens=9), **dict.fromkeys(others, GroupReport(refused=Refusal.NO_ROOM))}
        return replace(report, groups=groups, truncated=1.0)


class CutLater(CutOff):
    """Earns nothing, and after ROUNDS rounds does not even come to an answer."""

    steps = 0

    async def generate(self, prompts, **settings):
        return await (super() if self.steps >= ROUNDS else super(CutOff, self)).generate(prompts, **settings)

    async def train(self, *request, **settings):
        self.steps += 1
        return await (super() if self.steps > ROUNDS else super(CutOff, self)).train(*request, **settings)


@pytest.fixture
def warnings(manifest, database, caplog):
    """The warnings of a node with a policy of this skill after some rounds of four local groups."""

    async def of(policy, rounds=ROUNDS, **settings):
        clock, rng = TrioClock(10 * manifest.epoch_seconds), random.Random(1)
        node = build_node(
            replace(Config(external=0, eval_every=0, local=4), **settings),
            SwarmContext(replace(manifest, max_rounds=100), clock, Identity(Ed25519PrivateKey.generate()), rng),
            counters=Counters(database, manifest, now=clock.now(), key_is_new=True, rng=rng),
            database=database,
            scorer=KnowingScorer(policy.answers),
            policy=policy,
            on_fatal=lambda _: None,
        )
        await run_node(node, publish, rounds=rounds)
        return [each.getMessage() for each in caplog.records if "local groups" in each.getMessage()]

    return of


async def publish(_topic, _message):
    """Nobody listens."""


def oracle(manifest, skill, kind=Oracle):
    return kind(manifest, random.Random(1), skill=skill)


async def test_without_any_reward_the_operator_is_told_what_may_help(warnings, manifest):
    [told] = await warnings(oracle(manifest, 0))
    assert f"no completion of the last {MAX_QUIET_GROUPS} local groups was correct" in told
    for word in ("--examples 3", "--swarm smollm2-easy", "larger model", "sapo-node init --dry-run"):
        assert word in told
    assert "--max-tokens" not in told


async def test_the_warning_comes_once(warnings, manifest):
    assert len(await warnings(oracle(manifest, 0), rounds=3 * ROUNDS)) == 1


async def test_another_reason_is_told_once_too(warnings, manifest):
    first, second = await warnings(oracle(manifest, 0, CutLater), rounds=4 * ROUNDS)
    assert "raise --max-tokens" not in first
    assert "raise --max-tokens" in second


async def test_one_round_earlier_nothing_is_said(warnings, manifest):
    assert await warnings(oracle(manifest, 0), rounds=ROUNDS - 1) == []


async def test_a_policy_that_is_correct_now_and_then_is_not_warned_of(warnings, manifest):
    assert await warnings(oracle(manifest, 0.1), rounds=3 * ROUNDS) == []


async def test_a_policy_that_is_always_correct_needs_harder_tasks(warnings, manifest):
    [told] = await warnings(oracle(manifest, 1))
    assert "every completion" in told
    assert "harder tasks" in told
    assert "--examples" not in told


async def test_completions_that_are_cut_need_more_tokens(warnings, manifest):
    [told] = await warnings(oracle(manifest, 0, CutOff))
    assert "raise --max-tokens, because 100% of the completions are cut at 80 tokens" in told


async def test_completions_that_are_cut_by_the_swarms_bytes_need_fewer_tokens_or_another_swarm(warnings, manifest):
    [told] = await warnings(oracle(manifest, 0, CutByBytes), max_tokens=2048)
    assert "give a lower --max-tokens or a swarm that keeps more of a completion than" in told
    assert "because 100% of the completions are cut there" in told
    assert "raise" not in told
    assert "--swarm smollm2-easy" not in told


async def test_prompts_without_room_need_fewer_tokens_and_nothing_that_takes_more(warnings, manifest):
    [told] = await warnings(oracle(manifest, 0, WithoutRoom), examples=3)
    assert "give fewer --examples, or a lower --max-tokens, because 75% of the prompts do not fit into the" in told
    assert told.count("--examples") == told.count("--max-tokens") == 1


async def test_prompts_without_room_and_without_examples_need_fewer_tokens(warnings, manifest):
    [told] = await warnings(oracle(manifest, 0, WithoutRoom), examples=0)
    assert "give a lower --max-tokens, because" in told
    assert "--examples" not in told


async def test_what_is_already_so_is_not_advised(warnings, manifest):
    [told] = await warnings(oracle(manifest, 0), examples=8, swarm="smollm2-easy")
    assert "--examples" not in told
    assert "--swarm" not in told
    assert "larger model" in told
