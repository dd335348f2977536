"""Checks, before the network starts, that this node builds and scores every task of a swarm as its peers do.

If a node built other tasks, every peer's digest would differ from its own. If it used another version of a scorer, it
would count honest claims as false.
"""

from sapo_node.verification.sandbox.client import Sandbox
from sapo_node.verification.sandbox.messages import ScoreRequest
from sapo_node.verification.tasks import SCORER_VERSION, interop, plugins
from sapo_protocol import LocalError, Manifest

_ANSWER = "<answer>0</answer>"
"""Scored for each task, so that a scorer that does not work is found before the node joins the swarm."""


async def require_catalogue(manifest: Manifest, sandbox: Sandbox) -> None:
    """Raises LocalError if this node cannot build a task of the swarm, or scores it by another version."""
    _require_reasoning_gym(manifest, sandbox.reasoning_gym)
    for task in manifest.tasks:
        reason = sandbox.broken_plugins.get(task.dataset)
        if reason and plugins.is_foreign(task.dataset):
            raise LocalError(
                f"swarm {manifest.name!r} has the task {task.dataset}, and the package that defines it cannot be used: "
                f"{reason}; install a version of that package that works"
            )
        version = sandbox.plugins.get(task.dataset) if plugins.is_foreign(task.dataset) else SCORER_VERSION
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
        # Each in a batch of its own: a task that ends its process, or takes too long, fails all others of its batch.
        if await sandbox.score([ScoreRequest(task.dataset, task.config, 0, (_ANSWER,))]) == [None]:
            raise LocalError(
                f"task {number} of swarm {manifest.name!r}, {task.dataset} with {dict(task.config)}, cannot be built "
                f"or scored, and the log says why: check its name and configuration"
            )


def _require_reasoning_gym(manifest: Manifest, installed: str) -> None:
    """Raises LocalError unless the manifest's version of reasoning-gym is installed.

    Another version builds other items from the same seeds.
    """
    needed = manifest.reasoning_gym
    if not needed:
        foreign = {task.dataset for task in manifest.tasks} - interop.DATASETS
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
