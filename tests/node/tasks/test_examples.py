"""Worked examples: built from the task's own generator, correct by our own scorer, and never assigned or asked."""

from string import ascii_letters
from types import SimpleNamespace

import pytest

from sapo_node.groups.prompt import NO_EXAMPLES
from sapo_node.tasks import Task, build_task, plugins, score, worked_example
from sapo_node.tasks.task import FIRST_EXAMPLE_SEED
from sapo_node.training.evaluation import heldout_seed
from sapo_node.verification.catalogue import build_examples, example_requests
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_protocol import load_manifest
from swarm_parts import OpenScorer

SWARMS = ("starter", "interop", "paper-nine", "smollm2-easy")


@pytest.mark.parametrize("swarm", SWARMS)
async def test_every_task_of_a_shipped_swarm_has_its_examples_and_each_is_correct(swarm):
    manifest = load_manifest(swarm)
    examples = await build_examples(manifest, OpenScorer(), 3)
    for spec in manifest.tasks:
        shown = examples.by_dataset[spec.dataset]
        assert len(shown) >= 3
        tasks = [build_task(spec.dataset, spec.config, FIRST_EXAMPLE_SEED + number) for number in range(16)]
        by_prompt = {task.prompt: task for task in tasks}
        assert all(score(by_prompt[each.prompt], each.completion) for each in shown)


@pytest.mark.parametrize("swarm", SWARMS)
def test_no_example_has_a_seed_that_is_assigned_or_held_out(swarm):
    manifest = load_manifest(swarm)
    used = {request.seed for request in example_requests(manifest, 8)}
    held_out = {heldout_seed(manifest, spec, number) for spec in manifest.tasks for number in range(512)}
    assert min(used) >= 2**31
    assert not used & held_out


@pytest.mark.parametrize(
    ("dataset", "config", "shown"),
    [
        ("products", {"min_digits": 1, "max_digits": 1}, "8 * 2 = <answer>16</answer>"),
        (
            "chain_sum",
            {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
            "8 + 2 = <answer>10</answer>",
        ),
        ("leg_counting", {"min_animals": 1, "max_animals": 1, "max_instances": 9}, "9 * 6 = <answer>54</answer>"),
        ("leg_counting", {"min_animals": 2, "max_animals": 2, "max_instances": 9}, "<answer>38</answer>"),
    ],
)
def test_an_example_shows_its_working_where_there_is_any(dataset, config, shown):
    assert worked_example(build_task(dataset, config, FIRST_EXAMPLE_SEED + 2)) == shown


def test_an_example_restates_an_expression_from_its_first_bracket():
    (config,) = (spec.config for spec in load_manifest("paper-nine").tasks if spec.dataset == "basic_arithmetic")
    for seed in range(FIRST_EXAMPLE_SEED, FIRST_EXAMPLE_SEED + 300):
        task = build_task("basic_arithmetic", config, seed)
        expression = task.prompt.removesuffix(" Each quotient is floored.").lstrip(ascii_letters + ": ").rstrip("=.? ")
        assert worked_example(task) == f"{expression} = <answer>{task.answer}</answer>"


def plugin(**functions):
    return SimpleNamespace(SCORER_VERSION=1, earns=lambda prompt, answer, given: given == answer, **functions)


@pytest.mark.parametrize(
    ("functions", "shown"),
    [
        ({}, "<answer>4</answer>"),
        ({"example": lambda prompt, answer: f"I add. <answer>{answer}</answer>"}, "I add. <answer>4</answer>"),
        ({"example": lambda prompt, answer: "<answer>5</answer>"}, ""),
    ],
)
def test_a_task_of_another_package_writes_its_own_example_which_must_be_correct(monkeypatch, functions, shown):
    monkeypatch.setattr(plugins, "of", lambda _: plugin(**functions))
    assert worked_example(Task("another.package", "2 + 2?", "4")) == shown


async def test_a_prompt_that_is_an_example_itself_gets_the_others():
    examples = await build_examples(load_manifest("smollm2-easy"), OpenScorer(), 3)
    for asked in (*examples.by_dataset["products"], None):
        text = asked.prompt if asked else "What is 4 * 4?"
        shown = examples.prompt("products", text).examples
        assert len(shown) == 3
        assert text not in {each.prompt for each in shown}


async def test_without_a_count_no_example_is_built():
    assert await build_examples(load_manifest("starter"), OpenScorer(), 0) == NO_EXAMPLES


async def test_the_sandbox_gives_an_example_only_where_it_is_asked_for(sandbox):
    spec = load_manifest("smollm2-easy").tasks[0]
    plain, shown = await sandbox.score(
        [ScoreRequest(spec.dataset, spec.config, FIRST_EXAMPLE_SEED, (), example) for example in (False, True)]
    )
    assert plain.example == ""
    assert score(build_task(spec.dataset, spec.config, FIRST_EXAMPLE_SEED), shown.example)
