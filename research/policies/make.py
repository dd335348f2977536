"""Makes a policy, by lessons or by local GRPO, writes it as a model folder, and measures what was written."""

import random
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from research.policies import networks
from research.policies.catalogue import Making, Progress, Reinforced, TrainedGroup
from research.seed import measure
from research.seed.build import teach, write
from sapo_adversary.simulator.learning import one_core
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_protocol import Manifest

QUESTIONS = 400
"""Held-out questions per task for pass@1 as it is; the ceiling, which is far from 0, takes a quarter of them."""
LESSON_STEPS = 50
"""Steps of lessons among which the longest text is looked for."""


def make(making: Making, manifest: Manifest, work: Path, out: Path, progress: Progress) -> dict[str, Any]:
    """Write the policy to `out` and return its measurements. Lessons go on where they last saved to `work`."""
    with one_core():
        if isinstance(making, TrainedGroup):
            max_tokens = _teach(making, manifest, work, out, progress)
        else:
            max_tokens = _reinforce(making, manifest, out, progress)
        progress(1.0, "measuring")
        return {"max_tokens": max_tokens, **_measured(out, manifest, max_tokens)}


def _teach(making: TrainedGroup, manifest: Manifest, work: Path, out: Path, progress: Progress) -> int:
    """Teach and bury; returns the tokens that a completion needs, the end included."""
    recipe = making.recipe
    lessons = networks.lessons_for(making, {spec.dataset: spec.config for spec in manifest.tasks})
    tokenizer = networks.new_tokenizer(making, lessons)
    model = networks.new_network(making, tokenizer)
    for step, loss in teach(model, lessons, tokenizer, recipe, work):
        progress(step / recipe.steps, f"step {step} of {recipe.steps}, loss {loss:.3f}")
    write(model, tokenizer, out, networks.template_of(making))
    texts = [lesson.text for step in range(LESSON_STEPS) for lesson in lessons.step(step)]
    longest = 1 + max(len(tokenizer.encode(text).ids) for text in texts)
    return max(measure.MAX_TOKENS, -(-longest // 16) * 16)


def _reinforce(making: Reinforced, manifest: Manifest, out: Path, progress: Progress) -> int:
    """Let the packaged seed learn alone; returns the tokens that a completion needs, the end included."""
    options = LearnerOptions(checkpoints="", device="cpu", learning_rate=making.learning_rate)
    trainer = Trainer(load(options), options)
    rng = random.Random(f"policy/{making.seed}")  # noqa: S311 - reproducible, no secret
    rewards: list[float] = []
    reached = 0.0
    while reached < making.reward and trainer.step < making.most_rounds:
        rewards.append(fmean(measure.local_round(trainer, manifest.tasks, trainer.step + 1, rng)))
        # The first rounds count as part of a full window: a lucky one must not end it.
        reached = sum(rewards[-making.window :]) / making.window
        progress(reached / making.reward, f"round {trainer.step}, reward {reached:.2f} of {making.reward}")
    write(trainer.policy.model, networks.packaged_tokenizer(), out)
    return options.max_tokens


def _measured(out: Path, manifest: Manifest, max_tokens: int) -> dict[str, Any]:
    """Held-out pass@1 of what was written, as it is and with its careful openings forced."""
    policy = load(LearnerOptions(checkpoints="", device="cpu", model=str(out)))
    start = measure.pass_rate(policy, measure.heldout(manifest.tasks, QUESTIONS), seed=0, max_tokens=max_tokens)
    few = measure.heldout(manifest.tasks, max(4, QUESTIONS // 4))
    best = measure.ceiling(policy, few, seed=0, max_tokens=max_tokens)
    return {
        "parameters": sum(value.numel() for value in policy.model.parameters()),
        "questions": QUESTIONS,
        "start": asdict(start),
        "ceiling": asdict(best),
    }
