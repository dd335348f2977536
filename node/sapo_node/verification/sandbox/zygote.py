"""The sandbox process, the zygote: imports the swarm's tasks once, confines itself, then forks a child per batch.

- Before it confines itself, it tries the import of each task module of another package in a forked probe, because an
  import may hang or end its process. It then imports the modules that passed.
- Only a child reads peers' text. It confines itself further, rebuilds the tasks, scores the completions, writes a line
  per item and exits. It lives for one batch, so that it cannot affect another.
- If an item takes too much processor time, or ends the child, the zygote goes on with the next item in a new child.
- The zygote kills and reaps each child.
- Each request gets exactly one reply: for each item a result of the expected shape, or the cause of its failure.
"""

import contextlib
import gc
import importlib.metadata
import json
import logging
import math
import os
import resource
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from sapo_node.processes.frames import read_frame, write_frame
from sapo_node.processes.launch import die_with_parent
from sapo_node.tasks import (
    DATASETS,
    Task,
    TaskError,
    build_task,
    interop,
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
    decode_requests,
    encode_line,
    read_results,
    require_limits,
)

logger = logging.getLogger(__name__)

UNCONFINED = 70
"""Exit status of a child that could not confine itself. Such a child has read no completion."""
_FAILED = 71

_CAUSES_OF_ONE = frozenset({"timeout", "died"})
"""Causes of the item at which a child stopped. Any other cause fails the batch: an attacker may control the child."""

_prepared: set[str] = set()
"""The datasets that this process was started for."""

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
        for item in batch:
            line = memoryview(encode_line(_scored(item)))
            while line:
                line = line[os.write(writer, line) :]
        status = 0
    except LockdownError:
        status = UNCONFINED
    finally:
        os._exit(status)


def _scored(item: ScoreRequest) -> Scored | str:
    """Return what an item earns, or why it failed."""
    try:
        task = _task(item)
        levels = tuple(score(task, text, item.levels) for text in item.completions)
        example = worked_example(task) if item.example else ""
        require_limits(task.prompt, example)
        return Scored(task.prompt, task_digest(task.prompt, task.answer), levels, example)
    except BaseException as error:  # noqa: BLE001 - if an item fails in any way, the other items go on
        return _reason(error)


def _task(item: ScoreRequest) -> Task:
    if item.task is not None:
        return item.task
    if item.dataset not in _prepared | interop.DATASETS:
        raise TaskError(f"this sandbox was started without the dataset {item.dataset!r}")
    return build_task(item.dataset, item.config, item.seed)


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


def main(tasks: str) -> None:
    """Read requests from stdin until it ends, and write replies to stdout.

    `tasks` has dataset and configuration of each task of the swarm, as JSON.
    """
    # If memory cannot be bounded here, `probe_child_layers` reports the layer "rlimits" as missing.
    with contextlib.suppress(LockdownError):
        limit_memory()
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    pairs: list[tuple[str, dict[str, Any]]] = json.loads(tasks)
    _prepared.update(dataset for dataset, _ in pairs)
    try:
        version = importlib.metadata.version("reasoning-gym")
        probes = start_probes(sorted(_prepared.intersection(plugins.datasets())), (requests, replies))
        _warm_up(pairs)
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
        batch = Batch(
            decode_requests(request["batch"]),
            item_seconds=request["item_seconds"],
            cpu_seconds=request["cpu_seconds"],
            deadline=time.monotonic() + request["wall_seconds"],
        )
        write_frame(replies, {"results": _answer(batch, layers, (requests, replies))}, MAX_REPLY)


def _warm_up(pairs: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Import the datasets of reasoning-gym, and build and score an item of each. Then make each with its configuration.

    Once confined, the zygote can import and read nothing. A dataset that refuses its configuration refuses it in a
    child again. Raises TaskError or ImportError if reasoning-gym lacks a dataset.
    """
    for dataset in sorted(_prepared & DATASETS.keys()):
        task = build_task(dataset, {}, 1)
        score(task, f"<answer>{task.answer}</answer>")
    for dataset, config in pairs:
        if dataset in DATASETS:
            with contextlib.suppress(Exception):
                prepare(dataset, config)


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


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of one peer, and the limits that the zygote enforces."""

    items: Sequence[ScoreRequest]
    item_seconds: float
    """Seconds of processor time for one item."""
    cpu_seconds: float
    """Seconds of processor time for all items."""
    deadline: float
    """On the monotonic clock, for all items."""


def _answer(batch: Batch, layers: Mapping[str, bool], private: tuple[int, ...]) -> list[Any]:
    """Return for each item its result, or a list with the cause of its failure. A child begins with the first item, and
    if it does not get to the end, another child begins after the item at which it stopped.
    """
    results: list[Any] = []
    spent_before = _seconds_of_children()
    while len(results) < len(batch.items):
        rest = batch.items[len(results) :]
        left = batch.cpu_seconds - (_seconds_of_children() - spent_before)
        if left <= 0 or time.monotonic() >= batch.deadline:
            return results + [["timeout"]] * len(rest)
        limits = ChildLimits(math.ceil(left), rlimits=layers["rlimits"], seccomp=layers["seccomp"])
        found, cause = _run(replace(batch, items=rest), limits, private)
        results += found
        if cause in _CAUSES_OF_ONE and len(found) < len(rest):
            results.append([cause])
        elif cause:
            return [[cause]] * len(batch.items)
    return results


def _seconds_of_children() -> float:
    """Return the processor time of all children that were reaped."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(batch: Batch, limits: ChildLimits, private: tuple[int, ...]) -> tuple[list[Any], str]:
    """Score a batch in a new child, which closes the `private` descriptors. Return the results that it wrote, and the
    cause if it failed. Ends and reaps the child.
    """
    zygote = os.getpid()
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return [], "fork"
    if pid == 0:
        run_child(batch.items, limits, zygote, writer, (*private, reader))
    os.close(writer)
    results, cause = [], ""
    try:
        for result in read_results(_chunks(pid, reader, batch), batch.items):
            results.append(result)  # noqa: PERF402 - what came before an error stays
    except TimeoutError:
        cause = "timeout"
    except MalformedReplyError:
        cause = "malformed"
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    cause = cause or _cause_of_end(status)
    return results, cause or ("malformed" if len(results) < len(batch.items) else "")


def _chunks(pid: int, reader: int, batch: Batch) -> Iterator[bytes]:
    """Yield what the child writes, until it closes the pipe. Raises TimeoutError at the deadline, or when the child has
    used the processor time of an item since its last line.
    """
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    item_ends = _processor_time(pid) + batch.item_seconds
    while True:
        left = min(item_ends - _processor_time(pid), batch.deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError
        if not poll.poll(math.ceil(left * 1000)):
            continue
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return
        if b"\n" in chunk:
            item_ends = _processor_time(pid) + batch.item_seconds
        yield chunk


def _processor_time(pid: int) -> float:
    """Return the seconds of processor time that a process has used; 0 on a platform that does not tell. There an item
    has the limit of its batch.
    """
    try:
        # How clock_getcpuclockid(3) makes the id of the clock of a process on Linux.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _cause_of_end(status: int) -> str:
    """Return why the child failed, by its exit status; empty if it did not fail."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return "timeout"
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNCONFINED:
        return "no_sandbox"
    return "" if status == 0 else "died"
