"""Checks a task as a swarm will use it: the same items everywhere, no reward for nothing, within time and limits.

`check` yields one finding for each rule. It surveys the task in several processes: of this Python with three hash
seeds, in two orders, and of the other Pythons of this machine. The sandbox then scores some items confined.
"""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import trio

from sapo_node.cli.tasks.chosen import Chosen
from sapo_node.cli.tasks.survey import Item, Survey
from sapo_node.tasks import build_task, task_digest
from sapo_node.tasks.items import SEEDS, item_hash, known_hashes
from sapo_node.tasks.score import MAX_ANSWER
from sapo_node.verification.sandbox.requests import MAX_BATCH, MAX_EXAMPLE, MAX_PROMPT, ScoreRequest
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import ASSIGNED_SEEDS, LocalError, TaskSpec
from sapo_protocol.printable import excerpt

MOST_FOR_A_CONSTANT = 0.15
"""The share of an item that the best constant answer may earn on average."""

MEAN_MS, MOST_MS = 50.0, 2_000.0
"""Milliseconds of processor time to build an item: on average, and at most."""

ANSWER_MS = 100.0
"""Milliseconds of processor time to score one answer, at most. A batch of 256 answers has five seconds."""

_HASH_SEEDS = ("0", "1", "2")
"""PYTHONHASHSEED of the processes. The sandbox has 0. The last process builds the items in reverse order."""

_PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
_PROCESS_SECONDS = 600.0
"""Seconds in which a process must survey the task."""


class Outcome(StrEnum):
    """The result of a check in one word."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    outcome: Outcome
    text: str
    advice: str = ""
    """Advice for the author; empty if there is none."""


def _finding(check: str, fault: str, sound: str, advice: str) -> Finding:
    """Return a finding that failed if there is a fault."""
    return Finding(check, Outcome.FAILED, fault, advice) if fault else Finding(check, Outcome.PASSED, sound)


async def check(task: Chosen, items: int, tell: Callable[[str], None]) -> AsyncGenerator[Finding, None]:
    """Yield each finding when it is made. `tell` gets a line of progress. Raises LocalError if no item can be built."""
    seeds = sorted(random.Random(0).sample(range(ASSIGNED_SEEDS), items))  # noqa: S311 - no secret
    tell(f"building {items} items")
    first = await _survey(task, seeds, hash_seed=_HASH_SEEDS[0])
    for finding in judge(first, task.levels):
        yield finding
    if all(item.fault for item in first.items):
        return
    if known := known_hashes().get(task.dataset):
        yield as_known(task.dataset, known)
    for hash_seed, name, order in ((_HASH_SEEDS[1], "again", seeds), (_HASH_SEEDS[2], "in reverse order", seeds[::-1])):
        tell(f"building them {name} with hash seed {hash_seed}")
        yield _same(name, first, await _survey(task, order, hash_seed=hash_seed), _STATE_ADVICE)
    pythons = other_pythons()
    if not pythons:
        yield Finding("other Pythons", Outcome.SKIPPED, f"none of {', '.join(_PYTHONS)} is on the path")
    for python in pythons:
        tell(f"building them with {python}")
        yield await _of_other(python, task, seeds, first)
    tell("scoring some of them in the sandbox")
    yield await _in_sandbox(task, first)


def as_known(dataset: str, known: Sequence[str]) -> Finding:
    """Compare the first items of a dataset of reasoning-gym with the hashes of the catalogue."""
    tasks = (build_task(dataset, {}, seed) for seed in SEEDS)
    built = [item_hash(task_digest(task.prompt, task.answer)) for task in tasks]
    differing = sum(ours != theirs for ours, theirs in zip(built, known, strict=True))
    return _finding(
        "catalogue",
        f"{differing} of {len(known)} items with the default configuration have other hashes" if differing else "",
        f"{len(known)} items with the default configuration have the known hashes",
        "install the version of reasoning-gym that the extra `node` of sapo-node pins",
    )


_STATE_ADVICE = (
    "let the item depend on config and seed alone: random.Random(seed) in place of the module random, sorted() around "
    "a set, no global state"
)
_VERSION_ADVICE = (
    "a version of Python changed something that the item uses: sums of floats, unicodedata, a function of random"
)


async def _of_other(python: str, task: Chosen, seeds: Sequence[int], first: Survey) -> Finding:
    try:
        other = await _survey(task, seeds, python=python)
    except LocalError as error:
        return Finding(python, Outcome.SKIPPED, str(error))
    if other.versions != first.versions:
        return Finding(python, Outcome.SKIPPED, f"it has {other.versions}, and this Python {first.versions}")
    return _same(python, first, other, _VERSION_ADVICE)


def judge(survey: Survey, levels: int) -> Iterator[Finding]:
    """Yield the findings that one survey allows."""
    sound = [item for item in survey.items if not item.fault]
    faults = [item for item in survey.items if item.fault]
    yield _finding(
        "items",
        f"{len(faults)} faults; the first, of seed {faults[0].seed}: {faults[0].fault}" if faults else "",
        f"{len(sound)} built, {len({item.digest for item in sound})} of them different",
        "every seed must give an item, and every answer a verdict; a configuration is given by --config",
    )
    if not sound:
        return
    yield _lengths(sound)
    yield _speed(survey)
    yield _references(sound, levels)
    yield _hostile(sound, levels)
    yield _constants(survey, len(sound), levels)


def _lengths(items: Sequence[Item]) -> Finding:
    limits = {
        "prompt": (max(item.prompt_length for item in items), MAX_PROMPT),
        "reference": (max(len(item.answer) for item in items), MAX_ANSWER),
        "worked example": (max(item.example_length for item in items), MAX_EXAMPLE),
    }
    return _finding(
        "lengths",
        ", ".join(f"a {name} of {length:,} characters" for name, (length, most) in limits.items() if length > most),
        ", ".join(f"{name} up to {length:,}" for name, (length, _) in limits.items()) + " characters",
        f"at most {MAX_PROMPT:,} characters of a prompt, {MAX_ANSWER:,} of a reference, {MAX_EXAMPLE:,} of an example",
    )


def _speed(survey: Survey) -> Finding:
    mean = sum(survey.build_ms) / len(survey.build_ms)
    slowest, answer = max(survey.build_ms), max(survey.score_ms)
    return _finding(
        "speed",
        f"{_speeds(mean, slowest, answer)}" if mean > MEAN_MS or slowest > MOST_MS or answer > ANSWER_MS else "",
        _speeds(mean, slowest, answer),
        f"at most {MEAN_MS:g} ms an item on average, {MOST_MS:g} ms for one, {ANSWER_MS:g} ms for one answer: choose "
        f"smaller sizes, and let `earns` bound its work",
    )


def _speeds(mean: float, slowest: float, answer: float) -> str:
    return f"{mean:.1f} ms an item on average, {slowest:.1f} ms the slowest; {answer:.1f} ms the slowest answer"


def _references(items: Sequence[Item], levels: int) -> Finding:
    missed = [item for item in items if item.reference != levels]
    shown = sum(item.example_length > 0 for item in items)
    return _finding(
        "reference",
        f"{len(missed)} of {len(items)} references earn less than {levels}; the first: {missed[0].answer!r}"[:300]
        if missed
        else "",
        f"each earns level {levels}; {shown} of {len(items)} items have a worked example",
        "earns(prompt, answer, answer) must be True; the answer comes without blanks at its ends",
    )


def _hostile(items: Sequence[Item], levels: int) -> Finding:
    paid = [(answer, item) for item in items for answer, level in item.hostile.items() if level == levels]
    return _finding(
        "hostile answers",
        f"{excerpt(paid[0][0], 40)!r} is correct for the reference {paid[0][1].answer!r}"[:300] if paid else "",
        "none of them is correct",
        "compare with the reference by a grammar of your own; never evaluate an answer",
    )


def _constants(survey: Survey, items: int, levels: int) -> Finding:
    best = max(survey.constants, key=lambda answer: survey.constants[answer])
    share = survey.constants[best] / (items * levels)
    told = f"the best, {excerpt(best, 40)!r}, earns {share:.2f} of an item on average"
    most = MOST_FOR_A_CONSTANT
    if most < share <= most + 2 * math.sqrt(most * (1 - most) / items):  # two standard errors
        return Finding("constant answers", Outcome.SKIPPED, f"{told}: too few items to tell", "give more --items")
    return _finding(
        "constant answers",
        told if share > most else "",
        told,
        f"at most {most}: draw the items so that no answer is frequent, or give fewer parts credit",
    )


def _same(name: str, first: Survey, other: Survey, advice: str) -> Finding:
    differing = [ours.seed for ours, theirs in zip(first.items, other.items, strict=False) if ours != theirs] or [0] * (
        len(first.items) != len(other.items) or first.constants != other.constants
    )
    return _finding(
        name,
        f"{len(differing)} of {len(first.items)} items or rewards differ, the first of seed {differing[0]}"
        if differing
        else "",
        "the same items and rewards in another process",
        advice,
    )


async def _survey(task: Chosen, seeds: Sequence[int], *, hash_seed: str = "0", python: str = sys.executable) -> Survey:
    """Survey the task in a process of its own. Raises LocalError if the process fails."""
    request = {
        "dataset": task.dataset,
        "config": task.config,
        "seeds": seeds,
        "levels": task.levels,
        "path": sys.path if python == sys.executable else task.path,
    }
    # -P: the folder in which the user stands may be foreign, so no module is imported from it.
    command = [python, "-P", "-m", "sapo_node.cli.tasks.survey"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    with trio.move_on_after(_PROCESS_SECONDS):
        try:
            done = await trio.run_process(
                command,
                stdin=json.dumps(request).encode(),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=environment,
            )
        except OSError as error:
            raise LocalError(f"cannot start {python}: {error.strerror}") from error
        return _decoded(done)
    raise LocalError(f"the process did not end within {_PROCESS_SECONDS:g} s")


def _decoded(done: subprocess.CompletedProcess[bytes]) -> Survey:
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if not lines:
            raise LocalError(
                f"the module ended its process with status {done.returncode}: `earns` must never evaluate an answer, "
                f"and neither `item` nor `earns` may exit"
            )
        # The last line of a traceback says why; of a launcher that finds no interpreter it is the first.
        raise LocalError(excerpt(lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0], 300))
    reply = json.loads(done.stdout)
    if "error" in reply:
        raise LocalError(excerpt(reply["error"], 300))
    items = [Item(**item) for item in reply.pop("items")]
    return Survey(items, **reply)


def other_pythons() -> list[str]:
    """Return the commands of other versions of Python that are on the path."""
    own = f"python3.{sys.version_info.minor}"
    return [name for name in _PYTHONS if name != own and shutil.which(name)]


async def _in_sandbox(task: Chosen, survey: Survey) -> Finding:
    """Score references and hostile answers of some items in the confined sandbox."""
    items = [item for item in survey.items if not item.fault][:MAX_BATCH]
    batch = [
        ScoreRequest(
            task.dataset, task.config, item.seed, (f"<answer>{item.answer}</answer>",), example=True, levels=task.levels
        )
        for item in items
    ]
    sandbox = Sandbox((TaskSpec(task.dataset, task.config, weight=1),))
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        confined, broken = sandbox.confined, sandbox.broken_plugins.get(task.dataset, "")
        results = await sandbox.score(batch)
        nursery.cancel_scope.cancel()
    if not confined:
        return Finding("sandbox", Outcome.SKIPPED, sandbox.describe())
    lost = sum(result is None for result in results)
    differing = sum(
        result is not None and (result.digest.hex(), result.levels) != (item.digest, (item.reference,))
        for item, result in zip(items, results, strict=True)
    )
    return _finding(
        "sandbox",
        broken or (f"{lost} of {len(items)} items failed, {differing} differ" if lost or differing else ""),
        f"{len(items)} items are the same there, and earn the same",
        "the log says why; the module may import and read files when it is imported, never later",
    )
