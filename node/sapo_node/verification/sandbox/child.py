"""The forked child: it confines itself, rebuilds the tasks, scores the completions, writes a line per item, exits."""

import os
from collections.abc import Sequence
from typing import NoReturn

from sapo_node.verification.sandbox.lockdown import ChildLimits, LockdownError, confine_child
from sapo_node.verification.sandbox.messages import (
    MalformedReplyError,
    Scored,
    ScoreRequest,
    encode_line,
    require_limits,
)
from sapo_node.verification.tasks import TaskError, build_task, score, task_digest, worked_example

UNCONFINED = 70
"""Exit status of a child that could not confine itself. Such a child has read no completion."""

_FAILED = 71


def run_child(
    batch: Sequence[ScoreRequest], limits: ChildLimits, zygote: int, writer: int, foreign: Sequence[int]
) -> NoReturn:
    """Close the `foreign` descriptors, then score the batch. This never returns into the zygote's code."""
    status = _FAILED
    try:
        for descriptor in foreign:
            os.close(descriptor)
        confine_child(limits, zygote)
        output = memoryview(b"".join([encode_line(_scored(item)) for item in batch]))
        while output:
            output = output[os.write(writer, output) :]
        status = 0
    except LockdownError:
        status = UNCONFINED
    finally:
        os._exit(status)


def _scored(item: ScoreRequest) -> Scored | str:
    """Return what an item earns, or why it failed."""
    try:
        task = build_task(item.dataset, item.config, item.seed)
        rewards = tuple(score(item.dataset, task, text) for text in item.completions)
        example = worked_example(task) if item.example else ""
        require_limits(task.prompt, example)
        return Scored(task.prompt, task_digest(task.prompt, task.answer), rewards, example)
    except BaseException as error:  # noqa: BLE001 - if an item fails in any way, the other items go on
        return _reason(error)


def _reason(error: BaseException) -> str:
    try:
        return str(error) if isinstance(error, TaskError | MalformedReplyError) else f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - another package wrote the error, and its text may fail as well
        return type(error).__name__
