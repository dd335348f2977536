"""Builds items of a task and scores answers to them, in a process of its own, for `sapo-node task check`.

    python -m sapo_node.cli.tasks.survey < request.json > survey.json

The process may be of another Python, have another hash seed, or build the items in another order. Its survey must be
the same, but for the times. It imports the room of tasks and nothing else of a node.
"""

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sapo_node.tasks import Task, TaskError, build_task, plugins, prepare, score, task_digest, worked_example
from sapo_node.tasks.score import MAX_ANSWER, longest_answer

SECONDS = 5.0
"""Seconds of processor time for one item or one answer, at most."""

_WITH_ANSWERS = 25
"""Items to which the hostile answers are given."""

_MOST_FREQUENT = 5
"""References that are tried as a constant answer to all items."""

_CONSTANTS = ("0", "1", "2", "-1", "yes", "no", "True", "False", "A", "B", "None", "[]", "x", "a", "the")
"""Answers that need no knowledge of the item."""

_BITS = (
    "9",
    "(",
    "[",
    "{",
    "-",
    "\\frac{",
    "\\pm ",
    "9^",
    "1e9",
    "a,",
    "a|",
    " a",
    "\n",
    "<answer>",
    "\u0661",
    "\u200b",
)
_TEXTS = (
    *("a" * 30 + "!", "(a+)+$", ".*", "%s%n", "nan", "inf", "1e999999999", "9" * 30, "\U0001fae8", "\U0001d7d7"),
    *("__import__('os')._exit(9)", "exit()", "lambda: 0", "{}", "{{}}", "null", '{"a":' * 500, "9**9**9**9", "\0"),
)
HOSTILE = (*(bit * MAX_ANSWER for bit in _BITS), *_TEXTS)
"""Answers that are correct nowhere. Each is cut to what ANS-1 lets through."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item, and what answers to it earn."""

    seed: int
    digest: str = ""
    """Hexadecimal."""
    answer: str = ""
    prompt_length: int = 0
    example_length: int = 0
    reference: int = 0
    """The level of the reference answer."""
    hostile: dict[str, int] = field(default_factory=dict)
    """The level of each hostile answer that earns anything."""
    fault: str = ""
    """Why the item has no task or no reward; empty for a sound item."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All items in the order of their seeds."""

    items: list[Item]
    constants: dict[str, int]
    """The sum of the levels that each constant answer earns in all items."""
    versions: str
    """Versions of packages. Surveys of equal versions must be equal."""
    build_ms: list[float] = field(default_factory=list)
    """Milliseconds of processor time for each item."""
    score_ms: list[float] = field(default_factory=list)
    """Milliseconds of processor time for each answer."""


class _TooSlow(BaseException):
    """An item or an answer took more than SECONDS. No module catches this as one of its own errors."""


def survey(dataset: str, config: dict[str, Any], seeds: Sequence[int], levels: int) -> Survey:
    """Build the items of these seeds, in this order, and score the answers. Raises TaskError if there is no dataset."""
    with _patience():
        prepare(dataset, config)
    found, tasks = Survey([], {}, _versions()), dict[int, Task]()
    asked = sorted(seeds)[:_WITH_ANSWERS]  # in any order the same items
    for seed in seeds:
        with _faults(found.items, seed):
            with _timed(found.build_ms, "the item"):
                task = build_task(dataset, config, seed)
            found.items.append(_item(seed, task, HOSTILE if seed in asked else (), levels, found.score_ms))
            tasks[seed] = task
    frequent = Counter(sorted(task.answer for task in tasks.values())).most_common(_MOST_FREQUENT)
    for answer in dict.fromkeys((*(answer for answer, _ in frequent), *_CONSTANTS)):
        found.constants[answer] = 0
        for seed, task in tasks.items():
            with _faults(found.items, seed):
                found.constants[answer] += _level(task, answer, levels, found.score_ms)
    found.items.sort(key=lambda item: (item.seed, item.fault))
    return found


@contextmanager
def _faults(items: list[Item], seed: int) -> Iterator[None]:
    """Append what the block raises as a fault of this item."""
    try:
        yield
    except (Exception, SystemExit, _TooSlow) as error:  # noqa: BLE001 - another package wrote the module
        name = "" if isinstance(error, TaskError | _TooSlow) else f"{type(error).__name__}: "
        items.append(Item(seed, fault=f"{name}{error}"[:300]))


def _item(seed: int, task: Task, hostile: Sequence[str], levels: int, times: list[float]) -> Item:
    most = longest_answer(task)
    tried = {each[:most]: _level(task, each[:most], levels, times) for each in hostile}
    return Item(
        seed,
        task_digest(task.prompt, task.answer).hex(),
        task.answer,
        len(task.prompt),
        len(worked_example(task)),
        _level(task, task.answer, levels, times),
        {answer: level for answer, level in tried.items() if level},
    )


def _level(task: Task, answer: str, levels: int, times: list[float]) -> int:
    with _timed(times, f"the answer {answer[:40]!r}"):
        return score(task, f"<answer>{answer}</answer>", levels)


@contextmanager
def _timed(times: list[float], what: str) -> Iterator[None]:
    """Append the milliseconds of processor time of the block. Raises _TooSlow after SECONDS."""
    began = time.process_time()
    with _patience(what):
        yield
    times.append(round((time.process_time() - began) * 1000, 3))


@contextmanager
def _patience(what: str = "the import of the dataset") -> Iterator[None]:
    def expire(*_: object) -> None:
        raise _TooSlow(f"{what} takes more than {SECONDS:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _versions() -> str:
    found = []
    for package in ("sapo-node", "reasoning-gym"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def main() -> None:
    """Read a request from stdin, and write the survey to stdout."""
    request = json.load(sys.stdin)
    sys.path += [each for each in request.pop("path") if each not in sys.path]
    plugins.forget()
    replies, sys.stdout = sys.stdout, sys.stderr  # a module may print
    try:
        reply = asdict(survey(**request))
    except (TaskError, _TooSlow) as error:
        reply = {"error": str(error)}
    json.dump(reply, replies)


if __name__ == "__main__":
    main()
