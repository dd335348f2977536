"""Held-out pass@1: the policy's completions of prompts from seeds that no round ever assigns.

A task with few different prompts gives some of them in rounds all the same. So a node trains on no group with one of
the prompts that `heldout_prompts` returns.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from sapo_node.groups.levels import Levels
from sapo_node.groups.prompt import NO_EXAMPLES, Examples, task_name
from sapo_node.groups.record import is_cut, is_over_bytes
from sapo_node.groups.stats import LEVEL, Interval, clustered_interval, mean_of_intervals
from sapo_node.tasks.task import HELD_OUT_SEEDS
from sapo_node.training.rollout import Policy
from sapo_node.verification.sandbox.requests import ScoreRequest
from sapo_node.verification.verifier import Scorer
from sapo_protocol import ASSIGNED_SEEDS, LocalError, Manifest, TaskSpec
from sapo_protocol.cbor import encode

HELDOUT_DOMAIN = "sapo/heldout/1"
_CHUNK = 64
"""Completions per request to the learner, or those of one prompt, so that progress shows and memory stays small."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The levels of the samples, drawn at temperature 1, of each held-out prompt."""

    levels: dict[str, tuple[Levels, ...]]
    """By task, those of each of its prompts."""
    truncated: dict[str, int] = field(default_factory=dict)
    """By task, the number of completions that were cut at the limit."""
    over_bytes: dict[str, int] = field(default_factory=dict)
    """By task, the number of those that were cut at the bytes that the swarm keeps."""

    @property
    def samples(self) -> int:
        """Per prompt."""
        return next(len(each.each) for prompts in self.levels.values() for each in prompts)

    @property
    def rewards(self) -> dict[str, float]:
        """Mean reward of each task; with one level it is pass@1."""
        return {task: fmean(each.mean for each in prompts) for task, prompts in self.levels.items()}

    @property
    def per_task(self) -> dict[str, Interval]:
        """pass@1 of each task. The unit is the prompt: samples of one prompt say little about the others."""
        return self._per_task(LEVEL)

    @property
    def pass_at_1(self) -> Interval:
        """Mean over tasks."""
        return self.mean(LEVEL)

    def mean(self, level: float) -> Interval:
        """Mean of pass@1 over tasks, with the interval of a level."""
        return mean_of_intervals(list(self._per_task(level).values()))

    def _per_task(self, level: float) -> dict[str, Interval]:
        return {
            task: clustered_interval([each.right for each in prompts], self.samples, level)
            for task, prompts in self.levels.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **_figures(self.pass_at_1, fmean(self.rewards.values())),
            "level": LEVEL,
            "per_task": {task: _figures(interval, self.rewards[task]) for task, interval in self.per_task.items()},
            "samples": self.samples,
        }


def _figures(interval: Interval, reward: float) -> dict[str, float]:
    return {"pass_at_1": interval.point, "low": interval.low, "high": interval.high, "reward": reward}


def heldout_seed(manifest: Manifest, spec: TaskSpec, number: int) -> int:
    """The seed of a held-out prompt: at 2^31 or above, so no assignment has it."""
    digest = hashlib.sha256(encode([HELDOUT_DOMAIN, manifest.network_id, spec.dataset, number])).digest()
    return ASSIGNED_SEEDS + int.from_bytes(digest[:4], "big") % HELD_OUT_SEEDS


def heldout_request(manifest: Manifest, spec: TaskSpec, number: int) -> ScoreRequest:
    """Return the request that builds a held-out prompt."""
    return ScoreRequest(spec.dataset, spec.config, heldout_seed(manifest, spec, number), (), levels=spec.levels)


def heldout_requests(manifest: Manifest, prompts: int) -> list[ScoreRequest]:
    """Return the requests that build the first `prompts` held-out prompts of each task."""
    return [heldout_request(manifest, spec, number) for spec in manifest.tasks for number in range(prompts)]


async def heldout_prompts(manifest: Manifest, scorer: Scorer, prompts: int) -> frozenset[str]:
    """Return the first `prompts` held-out prompts of each task, without those that cannot be built."""
    built = await scorer.score(heldout_requests(manifest, prompts))
    return frozenset(task.prompt for task in built if task is not None)


async def measure(
    manifest: Manifest,
    policy: Policy,
    scorer: Scorer,
    *,
    prompts: int,
    samples: int,
    max_tokens: int,
    examples: Examples = NO_EXAMPLES,
    progress: Callable[[str, int], None] = lambda *_: None,
    stopping: Callable[[], bool] = lambda: False,
) -> HeldOut:
    """Sample the averaged weights on `prompts` held-out prompts of each task, the same for all nodes of a swarm. Of a
    task from a file, these are fewer prompts: several seeds draw one row, and each row is asked once. Call
    `progress` with the task and the number of its prompts that were just done. Raises LocalError if a prompt cannot be
    built, or between two requests to the learner if the node is `stopping`.
    """
    rng = random.Random(0)  # noqa: S311 - sampling noise shared by all nodes, not a secret
    levels, truncated, over_bytes = {}, {}, {}
    for spec in manifest.tasks:
        name = task_name(manifest, spec.dataset, spec.config)
        asked = await _built(scorer, [heldout_request(manifest, spec, number) for number in range(prompts)], name)
        if spec.source is not None:
            asked = list({prompt: (request, prompt) for request, prompt in asked}.values())
        earned: list[Levels] = []
        cut = over = 0
        at_once = max(1, _CHUNK // samples)
        for start in range(0, len(asked), at_once):
            if stopping():
                raise LocalError("the node is stopping")
            chunk = asked[start : start + at_once]
            answers = await policy.generate(
                [examples.prompt(name, prompt) for _, prompt in chunk],
                completions=samples,
                max_tokens=max_tokens,
                seed=rng.getrandbits(31),
                averaged=True,
            )
            scored = await scorer.score(
                [
                    replace(request, completions=tuple(answer.text for answer in group))
                    for (request, _), group in zip(chunk, answers, strict=True)
                ]
            )
            cut += sum(is_cut(each) for group in answers for each in group)
            over += sum(is_over_bytes(each, max_tokens) for group in answers for each in group)
            none = (0,) * samples
            earned += [Levels(each.levels if each is not None else none, spec.levels) for each in scored]
            progress(name, len(chunk))
        levels[name] = tuple(earned)
        truncated[name], over_bytes[name] = cut, over
    return HeldOut(levels, truncated, over_bytes)


async def _built(scorer: Scorer, requests: Sequence[ScoreRequest], name: str) -> list[tuple[ScoreRequest, str]]:
    """Return the requests of a task, each with its prompt. Raises LocalError if a prompt cannot be built."""
    built = await scorer.score(requests)
    asked = [(request, task.prompt) for request, task in zip(requests, built, strict=True) if task is not None]
    if len(asked) < len(requests):
        raise LocalError(f"held-out prompts of {name} could not be built; the log names the cause")
    return asked
