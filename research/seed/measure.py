"""How weak the seed policy is, how good its buried skill is, and how fast plain local GRPO brings it out."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sapo_adversary.seed_texts import CAREFUL_OPENING
from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.generate import generate
from sapo_node.learner.model import Policy, load
from sapo_node.learner.trainer import Trainer
from sapo_node.tasks import Task, build_task, score
from sapo_node.tasks.task import HELD_OUT_SEEDS
from sapo_protocol import ASSIGNED_SEEDS, TaskSpec

GROUPS = 8
COMPLETIONS = 8
MAX_TOKENS = 80
MAX_BYTES = 1024

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PassRate:
    """Held-out pass@1 at temperature 1, one sample a question: over all, and by dataset."""

    overall: float
    per_task: dict[str, float]


def heldout(specs: Sequence[TaskSpec], prompts: int) -> list[Task]:
    """Return `questions` held-out items of each dataset, always the same ones."""
    rng = random.Random("heldout")  # noqa: S311 - a fixed sample, no secret
    return [
        build_task(spec.dataset, spec.config, ASSIGNED_SEEDS + rng.randrange(HELD_OUT_SEEDS))
        for spec in specs
        for _ in range(prompts)
    ]


def pass_rate(
    policy: Policy, tasks: Sequence[Task], *, seed: int, opening: str = "", max_tokens: int = MAX_TOKENS
) -> PassRate:
    """Measure held-out pass@1; with an `opening`, of completions that are made to start so."""
    request = GenerateRequest(tuple(Prompt(task.prompt) for task in tasks), 1, max_tokens, seed)
    groups = generate(policy, request, MAX_BYTES, opening=opening)
    right: dict[str, list[bool]] = {}
    for task, [completion] in zip(tasks, groups, strict=True):
        right.setdefault(task.dataset, []).append(bool(score(task, completion.text)))
    per_task = {name: sum(marks) / len(marks) for name, marks in right.items()}
    return PassRate(sum(per_task.values()) / len(per_task), per_task)


def ceiling(policy: Policy, tasks: Sequence[Task], *, seed: int, max_tokens: int = MAX_TOKENS) -> PassRate:
    """Measure pass@1 of completions that are made to begin with a careful opening of their dataset."""
    per_task = {}
    for dataset in dict.fromkeys(task.dataset for task in tasks):
        own = [task for task in tasks if task.dataset == dataset]
        openings = CAREFUL_OPENING[dataset].common
        rates = [
            pass_rate(policy, own[place :: len(openings)], seed=seed, opening=opening, max_tokens=max_tokens)
            for place, opening in enumerate(openings)
        ]
        per_task[dataset] = sum(rate.overall for rate in rates) / len(rates)
    return PassRate(sum(per_task.values()) / len(per_task), per_task)


def local_grpo(
    model: str,
    specs: Sequence[TaskSpec],
    *,
    seed: int,
    rounds: int,
    every: int,
    prompts: int,
    learning_rate: float,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Train alone on `rounds` rounds and measure every so often; returns one record per measurement.

    `seconds` count generation, scoring and training, not the measuring.
    """
    options = LearnerOptions(
        checkpoints="",
        model=model,
        learning_rate=learning_rate,
        groups=GROUPS,
        completions=COMPLETIONS,
        max_tokens=MAX_TOKENS,
    )
    policy = load(options)
    trainer = Trainer(policy, options)
    tasks = heldout(specs, prompts)
    rng = random.Random(f"local/{seed}")  # noqa: S311 - reproducible runs, no secret
    records: list[dict[str, Any]] = []
    seconds = 0.0
    rewards: list[float] = []
    for step in range(rounds + 1):
        if step % every == 0 or step == rounds:
            rate = pass_rate(policy, tasks, seed=seed)
            records.append(
                {
                    "round": step,
                    "seconds": round(seconds, 1),
                    "pass_at_1": rate.overall,
                    "per_task": rate.per_task,
                    "reward_since": sum(rewards) / len(rewards) if rewards else None,
                }
            )
            rewards = []
            progress(f"seed {seed}, round {step}: pass@1 {rate.overall:.3f} after {seconds:.0f} s")
        if step < rounds:
            started = time.monotonic()
            rewards += local_round(trainer, specs, step + 1, rng)
            seconds += time.monotonic() - started
    return records


def local_round(trainer: Trainer, specs: Sequence[TaskSpec], step: int, rng: random.Random) -> list[float]:
    """Generate, score and train one round; returns the rewards of all completions."""
    drawn = [rng.choice(specs) for _ in range(GROUPS)]
    tasks = [build_task(spec.dataset, spec.config, rng.randrange(ASSIGNED_SEEDS)) for spec in drawn]
    prompts = tuple(Prompt(task.prompt) for task in tasks)
    request = GenerateRequest(prompts, COMPLETIONS, MAX_TOKENS, rng.getrandbits(31))
    groups, rewards = [], []
    for task, completions in zip(tasks, generate(trainer.policy, request, MAX_BYTES), strict=True):
        marks = [float(score(task, completion.text)) for completion in completions]
        groups.append(_group(task, completions, marks))
        rewards += marks
    trainer.train(TrainRequest(step, tuple(groups)))
    return rewards


def _group(task: Task, completions: tuple[Sampled, ...], marks: Sequence[float]) -> TrainGroup:
    return TrainGroup("local", task.prompt, 1.0, advantages(marks), completions)
