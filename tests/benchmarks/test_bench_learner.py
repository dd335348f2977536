"""How long a round of the seed policy takes, and what the learner's economies save, each a ratio within one run."""

import random
import sys
import time

import pytest
import torch

from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.tasks import build_task
from sapo_protocol import load_manifest

torch.set_num_threads(1)

OPTIONS = LearnerOptions(checkpoints="")
ROUNDS = 5


def a_round(trainer, step, rewards):
    """Seconds of generating and of training 8 groups of 8."""
    rng = random.Random(step)
    specs = load_manifest("starter").tasks
    prompts = tuple(
        build_task(spec.dataset, spec.config, rng.randrange(2**31)).prompt for spec in rng.choices(specs, k=8)
    )
    started = time.perf_counter()
    groups = generate(trainer.policy, GenerateRequest(tuple(map(Prompt, prompts)), 8, 80, step), 1024)
    generated = time.perf_counter()
    batch = tuple(
        TrainGroup("local", prompt, 1.0, advantages(rewards), group)
        for prompt, group in zip(prompts, groups, strict=True)
    )
    trainer.train(TrainRequest(step, batch))
    return generated - started, time.perf_counter() - generated


def mean(pairs):
    return tuple(sum(values) / len(values) for values in zip(*pairs, strict=True))


@pytest.mark.bench
def test_flat_groups_cost_no_training(capsys):
    trainer = Trainer(load(OPTIONS), OPTIONS)
    # The first step pays for torch's own start.
    a_round(trainer, 1, [1, 0, 0, 0, 0, 0, 0, 0])
    flat = mean([a_round(trainer, 2 + n, [0] * 8) for n in range(ROUNDS)])
    full = mean([a_round(trainer, 2 + ROUNDS + n, [1, 0, 0, 0, 0, 0, 0, 0]) for n in range(ROUNDS)])
    report = (
        f"round of 8 x 8: generate {full[0]:.3f} s, train {full[1]:.3f} s, ratio {full[1] / full[0]:.2f}; "
        f"flat groups cost {flat[1] / full[1]:.3f} of the training of groups with advantage\n"
    )
    with capsys.disabled():
        sys.stdout.write(report)
    assert flat[1] < 0.2 * full[1]
