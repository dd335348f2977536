"""Builds the worked examples of a swarm's tasks in the sandbox, from seeds that no round and no evaluation uses."""

import logging
from collections.abc import Sequence

from sapo_node.groups.prompt import NO_EXAMPLES, Example, Examples
from sapo_node.groups.task_name import task_name
from sapo_node.verification.sandbox.messages import Scored, ScoreRequest
from sapo_node.verification.verifier import Scorer
from sapo_protocol import ASSIGNED_SEEDS, Manifest

logger = logging.getLogger(__name__)

FIRST_SEED = ASSIGNED_SEEDS + 2**30
"""The seed of the first example. Assigned seeds are below ASSIGNED_SEEDS, and held-out seeds below FIRST_SEED."""
_TRIED = 4
"""Seeds tried for each example: the reference answer of some datasets is often incorrect."""


async def build_examples(manifest: Manifest, scorer: Scorer, count: int) -> Examples:
    """Return `count` worked examples for each task. A task has fewer if too few of its reference answers are correct.

    The same count gives the same examples in every node of a swarm.
    """
    if not count:
        return NO_EXAMPLES
    return examples_from(manifest, await scorer.score(example_requests(manifest, count)), count)


def example_requests(manifest: Manifest, count: int) -> list[ScoreRequest]:
    """Return the requests for the examples, task by task."""
    return [
        ScoreRequest(spec.dataset, spec.config, FIRST_SEED + number, (), example=True)
        for spec in manifest.tasks
        for number in range(_tried(count))
    ]


def examples_from(manifest: Manifest, results: Sequence[Scored | None], count: int) -> Examples:
    """Return the examples in the results of `example_requests`. One that asks what another one asks is left out."""
    found: dict[str, tuple[Example, ...]] = {}
    for place, spec in enumerate(manifest.tasks):
        shown = results[place * _tried(count) : (place + 1) * _tried(count)]
        distinct = {each.prompt: each.example for each in shown if each is not None and each.example}
        task = task_name(manifest, spec.dataset, spec.config)
        found[task] = tuple(Example(*each) for each in distinct.items())[: count + 1]
        if len(found[task]) < count:
            logger.warning("%s has only %d of %d worked examples", task, len(found[task]), count)
    return Examples(count, found)


def _tried(count: int) -> int:
    return _TRIED * (count + 1)
