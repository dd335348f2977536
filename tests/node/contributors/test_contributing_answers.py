"""The program of docs/start/your-answers.md: a node with default filters trains on what it answers."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

from sapo_node.app.config import Config
from sapo_node.contributors.program import program
from sapo_node.groups.advantage import external_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.groups.record import VerifiedGroup
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.weights import PassRates
from sapo_node.tasks import build_task, score

torch.set_num_threads(1)

PAGE = (Path(__file__).parents[3] / "docs/start/your-answers.md").read_text("utf-8")
PER_TASK = 4
"""Prompts of each task of the starter swarm."""


@pytest.fixture
async def groups(manifest, tmp_path):
    """What the program answers to prompts of every task, as a peer has verified it."""
    [code] = re.findall(r"```python\n(import json, re, sys.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "solver.py"
    script.write_text(code)
    specs = [(spec, seed) for spec in manifest.tasks for seed in range(PER_TASK)]
    tasks = [build_task(spec.dataset, spec.config, seed) for spec, seed in specs]
    async with program(shlex.join([sys.executable, str(script)]), max_bytes=manifest.max_completion_bytes) as solver:
        answers = await solver.generate(
            [Prompt(task.prompt) for task in tasks], completions=manifest.completions, max_tokens=80, seed=1
        )
    verified = []
    for place, (task, given) in enumerate(zip(tasks, answers, strict=True)):
        levels = Levels(tuple(score(task, each.text) for each in given))
        verified.append(VerifiedGroup("peer", 1, place, 0, task.dataset, task.prompt, given, levels))
    return verified


async def test_the_program_gives_correct_and_incorrect_completions_for_several_tasks(groups):
    informative = [group.dataset for group in groups if group.levels.is_mixed]
    assert len(set(informative)) >= 3
    assert {informative.count(dataset) for dataset in informative} == {PER_TASK}


async def test_a_node_with_default_filters_trains_on_at_least_half_of_the_tokens_of_its_correct_completions(groups):
    config = Config()
    options = LearnerOptions(checkpoints="", filters=config.filters, max_tokens=80)
    trainer = Trainer(load(options), options)
    offered, _ = Filters(config.filters, PassRates()).offer(groups)
    batch = tuple(
        TrainGroup(
            "external",
            each.group.prompt,
            1.0,
            each.advantages(external_advantages(each.group.levels)),
            each.group.completions,
        )
        for each in offered
    )
    report = trainer.train(TrainRequest(1, batch, config.external_objective))
    correct = [text for group in groups for text in group.correct]
    tokens = sum(len(trainer.policy.encode_foreign(text)) + 1 for text in correct)  # and the end
    assert report.external_tokens >= tokens / 2 > 0
