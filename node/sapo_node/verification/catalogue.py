"""Prepares a node for the tasks of its swarm, before the network starts.

`require_catalogue` checks that this node builds and scores every task as its peers do. With other tasks, the digest of
every peer would differ. With another version of a scorer, honest claims would count as false.

`build_examples` makes the worked examples, from seeds that no round and no evaluation uses.
"""

import logging
from collections.abc import Sequence

from sapo_node.groups.prompt import NO_EXAMPLES, Example, Examples, task_name
from sapo_node.tasks import SCORER_VERSION, interop, plugins
from sapo_node.tasks.items import SEEDS, item_hash, known_hashes
from sapo_node.tasks.task import FIRST_EXAMPLE_SEED
from sapo_node.verification.sandbox.requests import MAX_BATCH, Scored, ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_node.verification.verifier import Scorer
from sapo_protocol import LocalError, Manifest

logger = logging.getLogger(__name__)

_ANSWER = "<answer>0</answer>"
"""The sandbox scores it for each task, so that the node finds a broken scorer before it joins the swarm."""
_COMPARED = 4
"""Items of each dataset that are compared with the hashes of the known ones."""
_TRIED = 4
"""Seeds tried for each example: the reference answer of some datasets is often incorrect."""


async def require_catalogue(manifest: Manifest, sandbox: Sandbox) -> None:
    """Raises LocalError if this node cannot build a task of the swarm, or scores it by another version."""
    _require_reasoning_gym(manifest, sandbox.reasoning_gym)
    if manifest.max_turns > 1:
        raise LocalError(
            f"swarm {manifest.name!r} has a task of {manifest.max_turns} turns, and this version plays tasks of one "
            f"turn; choose another swarm"
        )
    for task in manifest.tasks:
        is_foreign = task.source is None and plugins.is_foreign(task.dataset)
        reason = sandbox.broken_plugins.get(task.dataset)
        if reason and is_foreign:
            raise LocalError(
                f"swarm {manifest.name!r} has the task {task.dataset}, and the package that defines it cannot be used: "
                f"{reason}; install a version of that package that works"
            )
        version = sandbox.plugins.get(task.dataset) if is_foreign else SCORER_VERSION
        if version is None:
            raise LocalError(
                f"swarm {manifest.name!r} has the task {task.dataset}, which another package defines; install that "
                f"package beside sapo-node, if you trust it"
            )
        if task.scorer != version:
            raise LocalError(
                f"swarm {manifest.name!r} scores {task.dataset} by version {task.scorer}, and version {version} is "
                f"installed here; install the version that the manifest names"
            )
    for number, task in enumerate(manifest.tasks, 1):
        # Each in a batch of its own: the items of a batch share its processor time.
        if await sandbox.score([ScoreRequest(task.dataset, task.config, 0, (_ANSWER,))]) == [None]:
            raise LocalError(
                f"task {number} of swarm {manifest.name!r}, {task.dataset} with {dict(task.config)}, cannot be built "
                f"or scored, and the log says why: check its name and configuration"
            )
    await _require_items(manifest, sandbox)


def _require_reasoning_gym(manifest: Manifest, installed: str) -> None:
    """Raises LocalError unless the manifest's version of reasoning-gym is installed.

    Another version builds other items from the same seeds.
    """
    needed = manifest.reasoning_gym
    if not needed:
        foreign = {task.dataset for task in manifest.tasks if task.source is None} - interop.DATASETS
        borrowed = sorted(dataset for dataset in foreign if not plugins.is_foreign(dataset))
        if borrowed:
            raise LocalError(
                f"swarm {manifest.name!r} names no version of reasoning-gym, but datasets that only reasoning-gym "
                f"could have: {', '.join(borrowed)}; set reasoning_gym in its manifest"
            )
    elif installed != needed:
        raise LocalError(
            f"swarm {manifest.name!r} is defined on reasoning-gym {needed}, and {installed} is installed; run: "
            f"pip install reasoning-gym=={needed}"
        )


async def _require_items(manifest: Manifest, sandbox: Sandbox) -> None:
    """Raises LocalError if this node builds other items of a dataset than `sapo_node.tasks.items` knows.

    It looks at tasks without a configuration, since the hashes are those of the default configurations. It compares the
    items that were built: a busy machine may lack the time for one.
    """
    known = known_hashes()
    datasets = sorted({task.dataset for task in manifest.tasks if not task.config} & known.keys())
    requests = [ScoreRequest(dataset, {}, seed, ()) for dataset in datasets for seed in SEEDS[:_COMPARED]]
    expected = [item for dataset in datasets for item in known[dataset][:_COMPARED]]
    for first in range(0, len(requests), MAX_BATCH):
        batch = requests[first : first + MAX_BATCH]
        for request, built, item in zip(batch, await sandbox.score(batch), expected[first:], strict=False):
            if built is not None and item_hash(built.digest) != item:
                raise LocalError(
                    f"reasoning-gym {sandbox.reasoning_gym} here builds other items of {request.dataset} than its "
                    f"peers do; run: pip install --force-reinstall reasoning-gym=={sandbox.reasoning_gym}"
                )


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
        ScoreRequest(spec.dataset, spec.config, FIRST_EXAMPLE_SEED + number, (), example=True)
        for spec in manifest.tasks
        for number in range(_tried(count))
    ]


def examples_from(manifest: Manifest, results: Sequence[Scored | None], count: int) -> Examples:
    """Return the examples in the results of `example_requests`, at most one for each prompt."""
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
