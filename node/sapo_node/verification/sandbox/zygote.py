"""The sandbox process, the zygote: imports everything once, confines itself, then forks one child per batch.

- Before it confines itself, it tries the import of each task module of another package in a forked probe, because an
  import may hang or end its process. It then imports the modules that passed.
- Only a child reads peers' text. It confines itself further, rebuilds the tasks, scores the completions, writes a line
  per item and exits. It lives for one batch, so that it cannot affect another.
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sapo_node.processes.frames import read_frame, write_frame
from sapo_node.processes.launch import die_with_parent
from sapo_node.tasks import (
    DATASETS,
    TaskError,
    build_task,
    plugins,
    prepare,
    score,
    task_digest,
    worked_example,
)
from sapo_node.verification.sandbox.lockdown import (
    ChildLimits,
    LockdownError,
    confine_child,
    confine_zygote,
    limit_memory,
    probe_child_layers,
)
from sapo_node.verification.sandbox.requests import (
    MAX_REPLY,
    MalformedReplyError,
    Scored,
    ScoreRequest,
    collect_results,
    decode_requests,
    encode_line,
    require_limits,
)

logger = logging.getLogger(__name__)

UNCONFINED = 70
"""Exit status of a child that could not confine itself. Such a child has read no completion."""
_FAILED = 71

WALL_SECONDS = 5.0
"""Seconds after which a probe must have ended its import."""
_SOUND = "sound"
_MOST = 1_000
"""Bytes of a reason, at most."""


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
        rewards = tuple(bool(score(task, text)) for text in item.completions)
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


@dataclass(frozen=True, slots=True)
class Probe:
    """A process that imports the module of one dataset, and the pipe for its result."""

    dataset: str
    pid: int
    reader: int
    deadline: float


def start_probes(datasets: Iterable[str], private: Sequence[int]) -> list[Probe]:
    """Start a process per dataset that imports its module. These processes close the `private` descriptors."""
    zygote, deadline = os.getpid(), time.monotonic() + WALL_SECONDS
    probes: list[Probe] = []
    for dataset in datasets:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _import(dataset, zygote, writer, (*private, reader, *(probe.reader for probe in probes)))
        os.close(writer)
        os.set_blocking(reader, False)
        probes.append(Probe(dataset, pid, reader, deadline))
    return probes


def fault_of(probe: Probe) -> str:
    """Return why the module of a probe cannot be used; empty if it can. Ends and reaps the process."""
    status = _wait(probe)
    try:
        found = os.read(probe.reader, _MOST).decode("utf-8", "replace")
    except BlockingIOError:
        # The module started a process that still holds the other end of the pipe.
        found = ""
    os.close(probe.reader)
    if status is None:
        return f"its import does not end within {WALL_SECONDS:g} s"
    if found:
        return "" if found == _SOUND else found
    return f"its import ended the process with status {status}"


def _wait(probe: Probe) -> int | None:
    """Return the exit status, negative for a signal. At its deadline kill the process and return None."""
    while True:
        pid, status = os.waitpid(probe.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > probe.deadline:
            os.kill(probe.pid, signal.SIGKILL)
            os.waitpid(probe.pid, 0)
            return None
        time.sleep(0.01)


def _import(dataset: str, zygote: int, writer: int, foreign: Sequence[int]) -> NoReturn:
    """Import the module, in the forked process. Its stdout is /dev/null, as the zygote's is by now."""
    try:
        for descriptor in foreign:
            os.close(descriptor)
        die_with_parent(zygote)
        try:
            plugins.of(dataset)
            found = _SOUND
        except TaskError as error:
            found = str(error)
        os.write(writer, found.encode("utf-8", "replace")[:_MOST])
    finally:
        # sys.exit would wait for threads that the module started.
        os._exit(1)


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
        score(task, f"<answer>{task.answer}</answer>")


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
