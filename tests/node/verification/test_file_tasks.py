"""A swarm whose tasks come from a file: the node reads the rows, and the sandbox scores them and opens no file."""

from dataclasses import replace

import pytest

from row_parts import quiz, sums, task_from
from sapo_node.groups.prompt import NO_EXAMPLES
from sapo_node.storage.row_files import open_rows
from sapo_node.tasks.task import FIRST_EXAMPLE_SEED
from sapo_node.training.evaluation import heldout_prompts, measure
from sapo_node.verification.catalogue import build_examples, require_catalogue
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import AnswerKind, LocalError
from swarm_parts import KnowingScorer, OpenScorer, Oracle


@pytest.fixture
def swarm(manifest, tmp_path):
    boxes = task_from(sums(200), tmp_path)
    cities = task_from(quiz(200), tmp_path, AnswerKind.CHOICE, "quiz.one")
    return replace(manifest, tasks=(boxes, cities), reasoning_gym="")


@pytest.fixture
def rows(swarm, tmp_path):
    return open_rows(swarm.tasks, tmp_path)


async def test_the_sandbox_scores_rows_as_this_process_does(swarm, rows, tmp_path, nursery):
    sandbox = Sandbox(swarm.tasks, tmp_path)
    await nursery.start(sandbox.run)
    await require_catalogue(swarm, sandbox)
    batch = [
        ScoreRequest(spec.dataset, {}, seed, (f"<answer>{rows[spec.dataset].task(seed).answer}</answer>", "no"), True)
        for spec in swarm.tasks
        for seed in (1, 2, 2**31, FIRST_EXAMPLE_SEED)
    ]
    results = await sandbox.score(batch)
    assert results == await OpenScorer(rows).score(batch)
    assert all(result.levels == (1, 0) and result.example for result in results)
    assert not sandbox.failures


async def test_another_scorer_version_keeps_a_node_out(swarm, sandbox):
    later = replace(swarm, tasks=tuple(replace(task, scorer=99) for task in swarm.tasks))
    with pytest.raises(LocalError, match="scores boxes by version 99"):
        await require_catalogue(later, sandbox)


def test_a_node_without_the_file_does_not_start_a_sandbox(swarm, tmp_path):
    with pytest.raises(LocalError, match=r"lacks a file of the swarm; get the file of boxes from https"):
        Sandbox(swarm.tasks, tmp_path / "elsewhere")


async def test_worked_examples_are_rows_that_are_neither_assigned_nor_held_out(swarm, rows):
    examples = await build_examples(swarm, OpenScorer(rows), 2)
    of_boxes = {each.prompt for each in examples.by_dataset["boxes"]}
    others = {
        sums(200)[number]["prompt"]
        for kind in ("assigned", "held_out")
        for number in getattr(rows["boxes"].split, kind)
    }
    assert len(of_boxes) == 3
    assert not of_boxes & others


async def test_held_out_prompts_are_never_assigned(swarm, rows):
    held_out = await heldout_prompts(swarm, OpenScorer(rows), 64)
    boxes = swarm.tasks[0].dataset
    assert not held_out & {rows[boxes].task(seed).prompt for seed in range(1_000)}


async def test_an_evaluation_asks_each_held_out_row_once(swarm, rows, rng):
    oracle = Oracle(swarm, rng)
    scorer = KnowingScorer(oracle.answers, rows)
    found = await measure(swarm, oracle, scorer, prompts=64, samples=1, max_tokens=9, examples=NO_EXAMPLES)
    for spec in swarm.tasks:
        assert len(found.levels[spec.dataset]) == len(rows[spec.dataset].split.held_out)
