"""Measures whether a model can learn from a swarm, before a node trains it. Starts no network, and keeps no weights.

GRPO learns from a group only if it is informative: its completions earn different levels. So `probe_model` asks each
held-out prompt for G completions, as a round does, and counts the informative groups. Then it times one round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import cycle, islice
from typing import Any

from rich.console import Console
from rich.table import Table

from sapo_node.app.advice import MANY_CUT, for_too_easy, for_too_hard
from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.cli.evaluation import read_only_learner
from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import Ready, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Examples, Prompt, task_name
from sapo_node.groups.stats import LEVEL, Interval, wilson_interval
from sapo_node.training.batch_log import local_id
from sapo_node.training.evaluation import HeldOut, heldout_request, measure
from sapo_node.training.rollout import Policy
from sapo_node.verification.catalogue import build_examples
from sapo_node.verification.verifier import Scorer
from sapo_protocol import Manifest

LEARNABLE = 0.1
"""Least share of informative groups of a task that can be learnt. With 8 completions this is a base rate of 1.3 %."""


class Difficulty(StrEnum):
    """The difficulty of a task for a model."""

    LEARNABLE = "learnable"
    TOO_HARD = "too hard"
    TOO_EASY = "too easy"


@dataclass(frozen=True, slots=True)
class TaskProbe:
    """The groups of one task."""

    dataset: str
    base_rate: Interval
    """pass@1 before any training."""
    informative: Interval
    """Share of the groups whose completions earn different levels."""
    cut: float
    """Share of the completions that were cut at the limit."""
    over_bytes: float
    """Share of the completions that were cut at the bytes that the swarm keeps."""

    @property
    def verdict(self) -> Difficulty:
        """Learnable, if enough groups are informative."""
        if self.informative.point >= LEARNABLE:
            return Difficulty.LEARNABLE
        return Difficulty.TOO_HARD if self.base_rate.point < 0.5 else Difficulty.TOO_EASY

    @property
    def is_unsure(self) -> bool:
        """True if too few prompts were asked to say that the task cannot be learnt."""
        return self.informative.point < LEARNABLE <= self.informative.high


@dataclass(frozen=True, slots=True)
class RoundProbe:
    """The cost of the local groups of one round."""

    groups: int
    tokens: int
    """Tokens of all completions."""
    generate_seconds: float
    train_seconds: float
    """If every group is informative; a group that is not costs nothing."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens that the model generates per second."""
        return self.tokens / self.generate_seconds


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of all measurements."""

    prompts: int
    """Prompts per task."""
    completions: int
    """Completions per prompt: G of the swarm."""
    tasks: tuple[TaskProbe, ...]
    round: RoundProbe
    max_bytes: int
    """Bytes that the swarm keeps of a completion."""

    def of(self, verdict: Difficulty) -> list[str]:
        """Return the tasks with a verdict."""
        return [task.dataset for task in self.tasks if task.verdict is verdict]

    @property
    def cut(self) -> float:
        """Share of all completions that were cut at the limit."""
        return sum(task.cut for task in self.tasks) / len(self.tasks)

    @property
    def over_bytes(self) -> float:
        """Share of all completions that were cut at the bytes that the swarm keeps."""
        return sum(task.over_bytes for task in self.tasks) / len(self.tasks)


async def probe_model(
    config: Config, manifest: Manifest, *, prompts: int, progress: Callable[[str, int], None]
) -> tuple[Probe, Ready]:
    """Load the model as `start` would, and measure it; also return the state in which the learner started.

    Raises LocalError if the model or a task of the swarm cannot be used.
    """
    recipe = recipe_of(config)
    async with read_only_learner(config, manifest, None) as (learner, sandbox):
        examples = await build_examples(manifest, sandbox, recipe.examples)
        probe = await measured(
            manifest,
            learner,
            sandbox,
            prompts=prompts,
            groups=config.local,
            max_tokens=recipe.max_tokens,
            examples=examples,
            progress=progress,
        )
        return probe, learner.ready


async def measured(
    manifest: Manifest,
    policy: Policy,
    scorer: Scorer,
    *,
    prompts: int,
    groups: int,
    max_tokens: int,
    examples: Examples,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> Probe:
    """Ask `prompts` held-out prompts of each task, then time a round of `groups` groups. The policy takes one step."""
    completions, step = manifest.completions, policy.step + 1
    found = await measure(
        manifest,
        policy,
        scorer,
        prompts=prompts,
        samples=completions,
        max_tokens=max_tokens,
        examples=examples,
        progress=progress,
    )
    progress("a round", 0)
    asked = await _prompts(manifest, scorer, groups, examples)
    timed = await _timed_round(policy, asked, step=step, completions=completions, max_tokens=max_tokens)
    return Probe(prompts, completions, _tasks(found), timed, manifest.max_completion_bytes)


def _tasks(found: HeldOut) -> tuple[TaskProbe, ...]:
    tasks = []
    for dataset, base_rate in found.per_task.items():
        prompts = found.levels[dataset]
        informative = sum(len(set(each.each)) > 1 for each in prompts)
        cut, over = (each[dataset] / (len(prompts) * found.samples) for each in (found.truncated, found.over_bytes))
        tasks.append(TaskProbe(dataset, base_rate, wilson_interval(informative, len(prompts)), cut, over))
    return tuple(tasks)


async def _prompts(manifest: Manifest, scorer: Scorer, count: int, examples: Examples) -> list[Prompt]:
    """Return held-out prompts, of each task in turn."""
    specs = [(number, spec) for number, spec in enumerate(islice(cycle(manifest.tasks), count))]
    built = await scorer.score([heldout_request(manifest, spec, number) for number, spec in specs])
    return [
        examples.prompt(task_name(manifest, spec.dataset, spec.config), task.prompt)
        for (_, spec), task in zip(specs, built, strict=True)
        if task
    ]


async def _timed_round(
    policy: Policy, prompts: Sequence[Prompt], *, step: int, completions: int, max_tokens: int
) -> RoundProbe:
    """Generate and train one round. Every second completion counts as correct, so that every group is trained on."""
    started = time.perf_counter()
    generated = await policy.generate(prompts, completions=completions, max_tokens=max_tokens, seed=0)
    between = time.perf_counter()
    shares = advantages([number % 2 for number in range(completions)])
    groups = [
        TrainGroup(
            source="local",
            prompt=prompt.text,
            weight=1.0,
            advantages=shares,
            completions=group,
            id=local_id(k),
            examples=prompt.examples,
        )
        for k, (prompt, group) in enumerate(zip(prompts, generated, strict=True))
    ]
    await policy.train(TrainRequest(step, tuple(groups)))
    tokens = sum(len(each.tokens or ()) for group in generated for each in group)
    return RoundProbe(len(groups), tokens, between - started, time.perf_counter() - between)


def advice_of(probe: Probe, config: Config) -> list[str]:
    """Return what may help: if no task can be learnt, if many completions are cut, or if the prompts were too few."""
    advice = []
    hard = for_too_hard(config, cut=probe.cut, over_bytes=probe.over_bytes, max_bytes=probe.max_bytes)
    if not probe.of(Difficulty.LEARNABLE):
        advice = hard if probe.of(Difficulty.TOO_HARD) else for_too_easy()
    elif probe.cut >= MANY_CUT:
        advice = hard[:1]
    if unsure := [task.dataset for task in probe.tasks if task.is_unsure]:
        advice.append(f"ask more --prompts than {probe.prompts}, which are too few to be sure of {', '.join(unsure)}")
    return advice


def as_dict(probe: Probe) -> dict[str, Any]:
    """Return the figures for JSON."""
    return {
        "prompts": probe.prompts,
        "completions": probe.completions,
        "level": LEVEL,
        "tasks": {
            task.dataset: {
                **{name: asdict(getattr(task, name)) for name in ("base_rate", "informative")},
                "cut": task.cut,
                "over_bytes": task.over_bytes,
                "verdict": task.verdict,
            }
            for task in probe.tasks
        },
        "round": {**asdict(probe.round), "tokens_per_second": probe.round.tokens_per_second},
        "learnable": probe.of(Difficulty.LEARNABLE),
    }


_STYLES = {Difficulty.LEARNABLE: "green", Difficulty.TOO_HARD: "red", Difficulty.TOO_EASY: "yellow"}


def print_probe(console: Console, probe: Probe, advice: Sequence[str]) -> None:
    """Print the figures of each task, how many can be learnt, and the advice."""
    title = f"held-out, {probe.prompts} prompts per task, {probe.completions} completions each"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("task")
    for name in ("base rate", f"{LEVEL:.0%}", "informative", "cut"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for task in probe.tasks:
        table.add_row(task.dataset, *_cells(task), task.verdict, style=_STYLES[task.verdict])
    console.print(table)
    learnable = len(probe.of(Difficulty.LEARNABLE)) or "none"
    console.print(
        f"{learnable} of {len(probe.tasks)} tasks can be learnt. A task can be learnt "
        f"if at least {LEARNABLE:.0%} of its groups are informative, that is, have completions of different levels.",
        highlight=False,
    )
    if advice:
        console.print("What may help, with another probe after each:", highlight=False)
        for each in advice:
            console.print(f"  - {each}", highlight=False)


def _cells(task: TaskProbe) -> Sequence[str]:
    rate = task.base_rate
    return f"{rate.point:.3f}", f"{rate.low:.2f} to {rate.high:.2f}", f"{task.informative.point:.0%}", f"{task.cut:.0%}"
