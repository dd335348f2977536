"""Held-out pass@1: the policy's own answers to questions that no round ever assigns."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from sapo_node.jail.messages import ScoreRequest
from sapo_node.trainer import Policy
from sapo_node.verify import Scorer
from sapo_protocol import ASSIGNED_SEEDS, LocalError, Manifest, TaskSpec
from sapo_protocol.cbor import encode

HELDOUT_DOMAIN = "sapo/heldout/1"
_HELDOUT_SEEDS = 2**30
_CHUNK = 16
"""Questions per request to the learner, so that progress shows and memory stays small."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Share of held-out questions answered correctly by one sample each, at temperature 1."""

    per_task: dict[str, float]
    questions: int
    """Per task."""

    @property
    def pass_at_1(self) -> float:
        """Mean over tasks."""
        return sum(self.per_task.values()) / len(self.per_task)


def heldout_seed(manifest: Manifest, spec: TaskSpec, number: int) -> int:
    """The seed of a held-out question: at 2^31 or above, where no assignment falls."""
    digest = hashlib.sha256(encode([HELDOUT_DOMAIN, manifest.network_id, spec.dataset, number])).digest()
    return ASSIGNED_SEEDS + int.from_bytes(digest[:4], "big") % _HELDOUT_SEEDS


async def measure(
    manifest: Manifest,
    policy: Policy,
    scorer: Scorer,
    *,
    questions: int,
    max_tokens: int,
    progress: Callable[[int], None] = lambda _: None,
) -> HeldOut:
    """Ask `questions` held-out questions of each task, the same for everybody in a swarm; `progress` counts them."""
    rng = random.Random(0)  # noqa: S311 - sampling noise shared by all who measure, not a secret
    per_task = {}
    for spec in manifest.tasks:
        seeds = [heldout_seed(manifest, spec, number) for number in range(questions)]
        correct = 0
        for start in range(0, questions, _CHUNK):
            chunk = seeds[start : start + _CHUNK]
            built = await scorer.score([ScoreRequest(spec.dataset, spec.config, seed, ()) for seed in chunk])
            asked = [task.question for task in built if task is not None]
            if len(asked) < len(chunk):
                raise LocalError(f"held-out questions of {spec.dataset} could not be built; the log names the cause")
            answers = await policy.generate(asked, completions=1, max_tokens=max_tokens, seed=rng.getrandbits(31))
            scored = await scorer.score(
                [
                    ScoreRequest(spec.dataset, spec.config, seed, (answer[0].text,))
                    for seed, answer in zip(chunk, answers, strict=True)
                ]
            )
            correct += sum(each is not None and each.rewards[0] for each in scored)
            progress(len(chunk))
        per_task[spec.dataset] = correct / questions
    return HeldOut(per_task, questions)
