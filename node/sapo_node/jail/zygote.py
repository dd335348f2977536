"""The jail's process: imports everything once, locks itself down, then forks one child per batch.

Guarantees: peers' text is handled only in a child that is locked down further and lives for one batch, so that nothing
it does reaches another batch; each child is killed and reaped; each request gets exactly one reply, which is results of
the right shape or the cause of their absence.
"""

import gc
import importlib.metadata
import json
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Any

from sapo_node.frames import read_frame, write_frame
from sapo_node.jail.child import UNCONFINED, run_child
from sapo_node.jail.lockdown import ChildLimits, confine_zygote, probe_child_layers
from sapo_node.jail.messages import MAX_REPLY, MAX_RESULT, ScoreRequest, decode_requests, decode_results
from sapo_node.tasks import DATASETS, TaskError, build_task, plugins, prepare, score


def main() -> None:
    """Serve requests on stdin until it ends; replies on stdout."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    try:
        version = importlib.metadata.version("reasoning-gym")
        _warm_up()
        scorers = {dataset: plugin.SCORER_VERSION for dataset, plugin in plugins.installed().items()}
    except (ImportError, TaskError) as error:
        write_frame(replies, {"fatal": f"the jail cannot load its tasks ({error}); install sapo-node again"})
        return
    layers = confine_zygote()
    os.dup2(null, 2)
    os.close(null)
    layers |= probe_child_layers()
    gc.collect()
    gc.freeze()
    write_frame(replies, {"ready": {"layers": layers, "reasoning_gym": version, "plugins": scorers}})
    while (request := read_frame(requests)) is not None:
        limits = ChildLimits(request["cpu_seconds"], rlimits=layers["rlimits"], seccomp=layers["seccomp"])
        reply = _answer(decode_requests(request["batch"]), limits, request["wall_seconds"], (requests, replies))
        write_frame(replies, reply, MAX_REPLY)


def _warm_up() -> None:
    """Build and score an item of each dataset, so that nothing is imported or read later, when it cannot be."""
    for dataset in sorted(DATASETS):
        task = build_task(dataset, {}, 1)
        score(dataset, task, f"<answer>{task.answer}</answer>")


def _answer(
    batch: Sequence[ScoreRequest], limits: ChildLimits, wall_seconds: float, private: tuple[int, ...]
) -> dict[str, Any]:
    """Results of a batch from a child of its own, or why there are none; `private` descriptors are kept from it."""
    for item in batch:
        try:
            prepare(item.dataset, item.config)
        except Exception:  # noqa: BLE001, S112 - whatever a dataset raises, the child meets it again and fails that item
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
    # By the size of the batch: a child in an attacker's hands must not have the zygote parse more than it asked for.
    limit = MAX_RESULT * len(batch)
    output = _read_until(reader, time.monotonic() + wall_seconds, limit)
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    cause = _cause(output, os.waitpid(pid, 0)[1], limit)
    if cause or output is None:
        return {"failed": cause}
    return _checked(output, batch)


def _read_until(reader: int, deadline: float, limit: int) -> bytes | None:
    """All that the child writes, cut past `limit` bytes; None when it is not done by the deadline."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    output = bytearray()
    while len(output) <= limit:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            break
        output += chunk
    return bytes(output)


def _cause(output: bytes | None, status: int, limit: int) -> str:
    """Why the child failed, from its output and its end; empty if it seems to have done its work."""
    if output is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return "timeout"
    if len(output) > limit:
        return "malformed"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNCONFINED:
        return "unconfined"
    return "" if status == 0 else "died"


def _checked(output: bytes, batch: Sequence[ScoreRequest]) -> dict[str, Any]:
    try:
        results = json.loads(output)
        decode_results(results, [len(item.completions) for item in batch])
    except (ValueError, RecursionError):
        return {"failed": "malformed"}
    return {"results": results}
