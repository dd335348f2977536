"""The probe of `sapo-node init`: what it measures of a policy, what it concludes, and what it advises."""

import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from rich.console import Console

from sapo_node.app.config import Config
from sapo_node.cli import probe as probing
from sapo_node.cli.commands.options import as_options
from sapo_node.cli.commands.running import start
from sapo_node.cli.probe import (
    LEARNABLE,
    Difficulty,
    Probe,
    RoundProbe,
    TaskProbe,
    advice_of,
    as_dict,
    measured,
    print_probe,
    probe_model,
)
from sapo_node.groups.messages import RequestError
from sapo_node.groups.prompt import NO_EXAMPLES
from sapo_node.groups.stats import wilson_interval
from swarm_parts import KnowingScorer, Oracle

SMOLLM = Config(model="seed", swarm="smollm2-easy")


def task(name, *, right, informative, of=16, cut=0.0, over_bytes=0.0):
    """A task of which 8 completions of each of 16 prompts were asked."""
    return TaskProbe(name, wilson_interval(right, 8 * of), wilson_interval(informative, of), cut, over_bytes)


HARD, EASY = task("gcd", right=0, informative=0), task("sums", right=128, informative=0)
GOOD, LONG = task("products", right=20, informative=9), task("legs", right=20, informative=9, cut=0.9)


def probe(*tasks, prompts=16):
    return Probe(prompts, 8, tasks, RoundProbe(4, 300, 2.0, 3.0), 1024)


def shown(found):
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        print_probe(console, found, advice_of(found, SMOLLM))
    return capture.get()


@pytest.mark.parametrize(("each", "verdict"), [(HARD, "too hard"), (EASY, "too easy"), (GOOD, "learnable")])
def test_a_task_is_learnable_by_its_informative_groups(each, verdict):
    assert each.verdict == verdict


def test_the_limit_counts_as_learnable():
    assert task("x", right=1, informative=LEARNABLE * 20, of=20).verdict is Difficulty.LEARNABLE


async def probed(manifest, skill):
    policy = Oracle(manifest, random.Random(1), skill=skill)
    found = await measured(
        manifest,
        policy,
        KnowingScorer(policy.answers),
        prompts=5,
        groups=4,
        max_tokens=80,
        examples=NO_EXAMPLES,
    )
    return found, policy


@pytest.mark.parametrize(
    ("skill", "verdict"), [(0, Difficulty.TOO_HARD), (0.3, Difficulty.LEARNABLE), (1, Difficulty.TOO_EASY)]
)
async def test_a_policy_of_this_skill_finds_all_tasks(manifest, skill, verdict):
    found, _ = await probed(manifest, skill)
    assert found.of(verdict) == [spec.dataset for spec in manifest.tasks]


async def test_every_group_of_the_timed_round_is_trained_on_also_where_no_completion_is_correct(manifest):
    found, policy = await probed(manifest, 0)
    [(step, groups)] = policy.trained
    assert step == 1
    assert len(groups) == found.round.groups == 4
    assert all(any(group.advantages) for group in groups)
    assert found.round.tokens == 4 * 8 * 3  # an Oracle writes three tokens


async def test_what_the_learner_refuses_is_said_as_the_learner_says_it(manifest, monkeypatch):
    class Refusing(Oracle):
        async def generate(self, prompts, **settings):
            raise RequestError("the learner refused: out of memory")

    @asynccontextmanager
    async def learner(*_):
        policy = Refusing(manifest, random.Random(1))
        yield policy, KnowingScorer(policy.answers)

    monkeypatch.setattr(probing, "read_only_learner", learner)
    with pytest.raises(RequestError, match=r"^the learner refused: out of memory$"):
        await probe_model(Config(examples=0), manifest, prompts=1, progress=lambda *_: None)


def test_the_table_says_how_many_tasks_can_be_learnt():
    assert "1 of 2 tasks can be learnt" in shown(probe(GOOD, HARD))


def test_a_configuration_as_options_is_one_that_start_takes_and_names_what_differs_from_the_defaults():
    changed = replace(SMOLLM, lora=8, learning_rate=1e-4, thinking=True, network="manual", log_to=("jsonl",))
    words = as_options(changed)
    assert words[:2] == ["--swarm", "smollm2-easy"]
    assert "--model" not in words
    given = start.make_context("start", words).params
    assert changed == Config().overridden({name: given[name] for name in Config.__dataclass_fields__ if name in given})


def test_without_a_learnable_task_there_is_advice():
    text = shown(probe(HARD, HARD))
    assert "none of 2 tasks can be learnt" in text
    assert "--examples 3" in text


def test_a_model_that_is_always_correct_is_not_told_to_become_larger():
    assert advice_of(probe(replace(EASY, informative=wilson_interval(0, 64))), SMOLLM) == [
        "join a swarm with harder tasks"
    ]


def test_completions_that_are_cut_are_advised_on_though_the_task_can_be_learnt():
    [advice] = advice_of(probe(LONG), SMOLLM)
    assert "90% of the completions are cut at 80 tokens" in advice


def test_completions_over_the_swarms_bytes_are_not_advised_to_become_longer():
    long = replace(LONG, over_bytes=0.8)
    [advice] = advice_of(probe(long), replace(SMOLLM, thinking=True))
    assert advice == (
        "give a lower --max-tokens, no --thinking, or a swarm that keeps more of a completion than 1,024 bytes, "
        "because 80% of the completions are cut there"
    )


def test_completions_of_which_few_are_over_the_swarms_bytes_are_advised_on_as_before():
    [advice] = advice_of(probe(replace(LONG, over_bytes=0.2)), SMOLLM)
    assert advice.startswith("raise --max-tokens")


async def test_a_completion_cut_before_its_last_token_was_cut_by_bytes(manifest):
    class Cut(Oracle):
        async def generate(self, prompts, **settings):
            groups = await super().generate(prompts, **settings)
            return [tuple(replace(each, finish="length") for each in group) for group in groups]

    async def shares(max_tokens):
        policy = Cut(manifest, random.Random(1))
        scorer = KnowingScorer(policy.answers)
        found = await measured(
            manifest, policy, scorer, prompts=1, groups=1, max_tokens=max_tokens, examples=NO_EXAMPLES
        )
        return found.cut, found.over_bytes

    assert await shares(4) == (1, 1)
    assert await shares(3) == (1, 0)  # an Oracle writes three tokens


def test_too_few_prompts_to_give_a_task_up_are_too_few():
    assert "which are too few to be sure of gcd" in advice_of(probe(GOOD, HARD), SMOLLM)[0]
    assert not advice_of(probe(GOOD, task("gcd", right=0, informative=0, of=64), prompts=64), SMOLLM)


def test_the_figures_fit_into_a_terminal_of_80_columns():
    long = replace(GOOD, dataset="fraction_simplification", cut=1.0)
    rows = [line for line in shown(probe(long, HARD)).splitlines() if "fraction" in line]
    assert rows[0].split()[0] == "fraction_simplification"
    assert rows[0].rstrip().endswith("learnable")


def test_json_has_the_figures_and_the_verdicts():
    found = as_dict(probe(GOOD, HARD))
    assert found["learnable"] == ["products"]
    assert found["tasks"]["gcd"]["verdict"] == "too hard"
    assert found["tasks"]["products"]["informative"]["point"] == 9 / 16
    assert found["round"]["tokens_per_second"] == 150
