"""Measures one dataset: what a constant answer earns, what an item costs, and how far the library's scorer agrees."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import reasoning_gym

from sapo_node.tasks import DATASETS, Task, build_task, score, task_digest
from sapo_node.tasks.build import prepare
from sapo_node.tasks.catalogue import describe
from sapo_node.tasks.items import SEEDS, item_hash

ITEMS = 1_000
"""Items that are measured."""
COMPARED = 64
"""Items that each Python builds, and that both scorers see."""
HASH_SEEDS = (0, 1, 12345)
_FREQUENT = 20
"""References that are tried as a constant answer, the most frequent first."""
_LEVELS = 240

CONSTANTS = (
    *("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "-1", "100", "0.5", "1.0", "0.0", "1/2", "1/3", "0x0"),
    *("Yes", "No", "True", "False", "None", "[]", "[0]", "a", "the", "and", "I", "infeasible", "red", "Alice", "P"),
    *("0 0\n0 0", "0 0 0", "0 0 0 0 0 0", "1 2 3", "0 0 0\n0 0 0\n0 0 0", "Monday", "x", "mother", "A1", "E5"),
)
"""Answers that are tried as a constant for every dataset."""

FORMS: Mapping[str, str] = {
    "as it is": "ANSWER",
    "box": "\\boxed{ANSWER}",
    "dollars": "$ANSWER$",
    "bold": "**ANSWER**",
    "backticks": "`ANSWER`",
    "fence": "```\nANSWER\n```",
    "sentence": "The answer is ANSWER.",
}
"""Forms in which an honest model may write its answer."""


def measure(dataset: str) -> dict[str, Any]:
    """Return the row of a dataset with its default configuration."""
    prepare(dataset, {})
    tasks, build = _timed(lambda number: build_task(dataset, {}, 1_000_003 * number), range(ITEMS))
    _, scoring = _timed(lambda number: _share(tasks[number], tasks[number].answer), range(ITEMS))
    best, earned = _best_constant(tasks)
    ours, theirs = _accepted(dataset, tasks[:COMPARED])
    return {
        "defaults": dict(sorted(DATASETS[dataset].defaults.items())),
        "correct": describe(DATASETS[dataset].scorer),
        "graded": DATASETS[dataset].graded,
        "references_correct": round(fmean(_share(task, task.answer) == 1 for task in tasks), 4),
        "constant": best[:60],
        "constant_earns": round(earned, 4),
        "build_ms": [round(fmean(build), 2), round(max(build), 1)],
        "score_ms": [round(fmean(scoring), 3), round(max(scoring), 2)],
        "prompt_characters": [int(median(len(task.prompt) for task in tasks)), max(len(task.prompt) for task in tasks)],
        "longest_reference": max(len(task.answer) for task in tasks),
        "forms_accepted": ours,
        "forms_accepted_by_library": theirs,
    }


def hashes(dataset: str) -> str:
    """Return the hashes of the dataset's first items, as `item_hashes.json` has them."""
    tasks = (build_task(dataset, {}, seed) for seed in SEEDS)
    return " ".join(item_hash(task_digest(task.prompt, task.answer)) for task in tasks)


def digests(python: Path, hash_seed: int, datasets: Sequence[str]) -> dict[str, str]:
    """Return the digest of COMPARED items of each dataset, built by another Python."""
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join([str(root / "node"), str(root / "protocol")]),
    }
    command = [str(python), str(Path(__file__).with_name("digest.py")), str(COMPARED), *datasets]
    lines = subprocess.check_output(command, env=environment, text=True).splitlines()
    return dict(line.split() for line in lines)


def version_of(python: Path) -> str:
    return subprocess.check_output(
        [python, "-c", "import platform; print(platform.python_version())"], text=True
    ).strip()


def _timed(make: Callable[[int], Any], numbers: Iterable[int]) -> tuple[list[Any], list[float]]:
    """Return what `make` returns for each number, and the milliseconds of processor time that each call took."""
    made, times = [], []
    for number in numbers:
        start = time.process_time()
        made.append(make(number))
        times.append(1000 * (time.process_time() - start))
    return made, times


def _share(task: Task, answer: str) -> float:
    return score(task, f"<answer>{answer}</answer>", _LEVELS) / _LEVELS


def _best_constant(tasks: Sequence[Task]) -> tuple[str, float]:
    frequent = (answer for answer, _ in Counter(task.answer for task in tasks).most_common(_FREQUENT))
    earned = {answer: fmean(_share(task, answer) for task in tasks) for answer in (*frequent, *CONSTANTS)}
    best = max(earned, key=lambda answer: earned[answer])
    return best, earned[best]


def _accepted(dataset: str, tasks: Sequence[Task]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of honest answers that we accept, and that the library accepts, for each form."""
    library = reasoning_gym.create_dataset(dataset, seed=0, size=1, **DATASETS[dataset].defaults)
    ours, theirs = {}, {}
    for form, pattern in FORMS.items():
        answers = [pattern.replace("ANSWER", task.answer) for task in tasks]
        ours[form] = round(fmean(_share(task, answer) == 1 for task, answer in zip(tasks, answers, strict=True)), 3)
        entries = ({"question": task.prompt, "answer": task.answer, "metadata": dict(task.metadata)} for task in tasks)
        pairs = zip(answers, entries, strict=True)
        theirs[form] = round(fmean(_library_accepts(library, answer, entry) for answer, entry in pairs), 3)
    return ours, theirs


def _library_accepts(library: Any, answer: str, entry: Mapping[str, Any]) -> bool:
    """Return the library's verdict on a text of our own. It runs some answers as code, so it may see no other text."""
    try:
        return bool(library.score_answer(answer, entry) >= 0.999)
    except (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError):
        return False
