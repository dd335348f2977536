"""The sandbox process, the zygote: imports everything once, confines itself, then forks one child per batch.

Rules:
- Only a child reads peers' text. It is confined further and lives for one batch, so that it cannot affect another.
- The zygote kills and reaps each child.
- Each request gets exactly one reply: results of the expected shape, or the cause of the failure.
"""

import contextlib
import gc
import importlib.metadata
import logging
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any

from sapo_node.processes.frames import read_frame, write_frame
from sapo_node.verification.sandbox.child import UNCONFINED, run_child
from sapo_node.verification.sandbox.lockdown import (
    ChildLimits,
    LockdownError,
    confine_zygote,
    limit_memory,
    probe_child_layers,
)
from sapo_node.verification.sandbox.messages import (
    MAX_REPLY,
    MalformedReplyError,
    ScoreRequest,
    collect_results,
    decode_requests,
)
from sapo_node.verification.sandbox.probe import Probe, fault_of, start_probes
from sapo_node.verification.tasks import DATASETS, TaskError, build_task, plugins, prepare, score

logger = logging.getLogger(__name__)


def main() -> None:
    """Read requests from stdin until it ends, and write replies to stdout."""
    # If memory cannot be bounded here, `probe_child_layers` reports the layer "rlimits" as missing.
    with contextlib.suppress(LockdownError):
        limit_memory()
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    try:
        version = importlib.metadata.version("reasoning-gym")
        probes = start_probes(plugins.datasets(), (requests, replies))
        _warm_up()
        scorers, broken = _import_plugins(probes)
    except (ImportError, TaskError) as error:
        write_frame(replies, {"fatal": f"the sandbox cannot load its tasks ({error}); install sapo-node again"})
        return
    layers = confine_zygote()
    os.dup2(null, 2)
    os.close(null)
    layers |= probe_child_layers()
    gc.collect()
    gc.freeze()
    ready = {"layers": layers, "reasoning_gym": version, "plugins": scorers, "broken_plugins": broken}
    write_frame(replies, {"ready": ready})
    while (request := read_frame(requests)) is not None:
        limits = ChildLimits(request["cpu_seconds"], rlimits=layers["rlimits"], seccomp=layers["seccomp"])
        reply = _answer(decode_requests(request["batch"]), limits, request["wall_seconds"], (requests, replies))
        write_frame(replies, reply, MAX_REPLY)


def _warm_up() -> None:
    """Build and score an item of each dataset. Once confined, the zygote can import and read nothing."""
    for dataset in sorted(DATASETS):
        task = build_task(dataset, {}, 1)
        score(dataset, task, f"<answer>{task.answer}</answer>")


def _import_plugins(probes: Sequence[Probe]) -> tuple[dict[str, int], dict[str, str]]:
    """Import the modules that passed their probe. Return their scorer versions, and for the others the reason."""
    scorers, broken = {}, {}
    for probe in probes:
        if reason := fault_of(probe):
            broken[probe.dataset] = reason
            continue
        try:
            scorers[probe.dataset] = plugins.of(probe.dataset).SCORER_VERSION
        except TaskError as error:
            broken[probe.dataset] = str(error)
    for dataset, reason in broken.items():
        plugins.leave_out(dataset, reason)
        logger.warning("left out the task %s of another package: %s", dataset, reason)
    return scorers, broken


def _answer(
    batch: Sequence[ScoreRequest], limits: ChildLimits, wall_seconds: float, private: tuple[int, ...]
) -> dict[str, Any]:
    """Score a batch in a new child, which closes the `private` descriptors. Return results, or the cause of failure."""
    for item in batch:
        try:
            prepare(item.dataset, item.config)
        except Exception:  # noqa: BLE001, S112 - the child gets the same exception again and fails that item
            continue
    zygote = os.getpid()
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return {"failed": "fork"}
    if pid == 0:
        run_child(batch, limits, zygote, writer, (*private, reader))
    os.close(writer)
    return _reply_of(pid, reader, [len(item.completions) for item in batch], wall_seconds)


def _reply_of(child: int, reader: int, expected: Sequence[int], wall_seconds: float) -> dict[str, Any]:
    """Return the results that the child writes to `reader`, or the cause of failure. Ends and reaps the child."""
    results, cause = [], ""
    try:
        results = collect_results(_chunks(reader, time.monotonic() + wall_seconds), expected)
    except TimeoutError:
        cause = "timeout"
    except MalformedReplyError:
        cause = "malformed"
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    cause = cause or _cause_of_end(status)
    if not cause and len(results) < len(expected):
        cause = "malformed"
    return {"failed": cause} if cause else {"results": results}


def _chunks(reader: int, deadline: float) -> Iterator[bytes]:
    """Yield what the child writes, until it closes the pipe. Raises TimeoutError at the deadline."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return
        yield chunk


def _cause_of_end(status: int) -> str:
    """Return why the child failed, by its exit status; empty if it did not fail."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return "timeout"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNCONFINED:
        return "no_sandbox"
    return "" if status == 0 else "died"
