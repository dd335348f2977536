"""One round of the seed policy and of a tiny Llama on a device, beside the same on the CPU; JSON on standard output.

Usage: on_device.py DEVICE FOLDER, the folder of the Llama.
"""

import json
import sys

import torch
from torch import Tensor

from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.batch import completion_logits, micro_batches, rows_of
from sapo_node.learner.generate import generate
from sapo_node.learner.grpo import token_logprobs
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer

PROMPTS = tuple(Prompt("Answer with care. " * 6 + f"What is {number} + 1?") for number in range(4))
TOKENS = 24


def trainer_on(device, model):
    options = LearnerOptions(checkpoints="", device=device, model=model, max_tokens=TOKENS)
    return Trainer(load(options), options)


def sampled_by(trainer):
    return generate(trainer.policy, GenerateRequest(PROMPTS, 8, TOKENS, 7), 1024)


def batch_of(groups):
    rewards = [1.0, *[0.0] * 7]
    return tuple(
        TrainGroup("local", prompt.text, 1.0, advantages(rewards), group)
        for prompt, group in zip(PROMPTS, groups, strict=True)
    )


def gradient_of(trainer, groups) -> Tensor:
    found: list[Tensor] = []
    step = trainer.optimizer.step

    def seen():
        found.append(torch.cat([value.grad.flatten().cpu() for value in trainer.parameters]))
        step()

    trainer.optimizer.step = seen
    trainer.train(TrainRequest(1, batch_of(groups)))
    return found[0]


@torch.no_grad()
def farthest_from_training(trainer, groups):
    """Return the largest difference between the log-probability of a token in sampling and in training."""
    policy = trainer.policy
    rows = [row for group in batch_of(groups) for row in rows_of(policy, group, TOKENS) if row.completion]
    far = [0.0]
    for batch in micro_batches(policy, rows):
        trained = token_logprobs(completion_logits(policy, batch), batch.targets)
        known = batch.mask.bool() & ~batch.sampled.isnan()
        far.append((trained[known] - batch.sampled[known]).abs().max().item())
    return max(far)


def compared(device, model):
    here, reference = trainer_on(device, model), trainer_on("cpu", model)
    groups = sampled_by(reference)
    expected, got = gradient_of(reference, groups), gradient_of(trainer_on(device, model), groups)
    own = sampled_by(here)
    return {
        "completions": sum(map(len, own)),
        "again": own == sampled_by(here),
        "from_training": farthest_from_training(here, own),
        "gradient": ((got - expected).norm() / expected.norm()).item(),
    }


if __name__ == "__main__":
    json.dump([compared(sys.argv[1], model) for model in ("seed", sys.argv[2])], sys.stdout)
