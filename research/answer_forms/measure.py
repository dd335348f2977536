"""Has right forms and wrong answers scored, by this version and by that of another checkout."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.answer_forms.right import right_forms
from research.answer_forms.wrong import wrong_answers
from sapo_node.tasks import SCORER_VERSION, Task, build_task, score

CONFIGS = {
    "arc_1d": {},
    "base_conversion": {},
    "basic_arithmetic": {},
    "bf": {},
    "binary_matrix": {},
    "calendar_arithmetic": {},
    "chain_sum": {},
    "decimal_arithmetic": {},
    "fraction_simplification": {},
    "leg_counting": {},
    "products": {},
    "propositional_logic": {},
    "spell_backward": {},
    "interop_largest": {"count": 3, "max": 9999},
    "interop_reverse": {"letters": 5},
    "interop_sum": {"max": 9999},
}
WRONG_VALUES = 10
"""Wrong values in wrappers for each item. Fifteen texts without a correct answer come on top."""

_STRIDE = 1_000_003
"""Between the seeds of items, so that no two items of propositional_logic are one."""

_SCORE = """
import json, sys
from sapo_node.tasks import SCORER_VERSION, Task, score
print(SCORER_VERSION)
for line in sys.stdin:
    *task, completion = json.loads(line)
    print(score(Task(*task), completion))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A completion, its task, and the name of its form; an incorrect one has no name."""

    task: Task
    form: str
    completion: str


def cases(items: int, seed: int) -> list[Case]:
    """Return the right forms and wrong answers of `items` items of each dataset."""
    rng = random.Random(seed)  # noqa: S311 - a sample, not a secret
    listed = []
    for dataset, config in CONFIGS.items():
        for number in range(items):
            task = build_task(dataset, config, (seed + number) * _STRIDE)
            listed += [Case(task, *form) for form in right_forms(task)]
            listed += [Case(task, "", text) for text in wrong_answers(task, rng, WRONG_VALUES)]
    return listed


def scored_here(listed: Sequence[Case]) -> tuple[int, list[int]]:
    """Return the version of the scorers, and the score of each case."""
    return SCORER_VERSION, [score(case.task, case.completion) for case in listed]


def scored_in(checkout: Path, listed: Sequence[Case]) -> tuple[int, list[int]]:
    """Return the same by the scorers of another checkout, in a process of its own."""
    lines = [json.dumps([case.task.dataset, case.task.prompt, case.task.answer, case.completion]) for case in listed]
    paths = os.pathsep.join(str(checkout / part) for part in ("node", "protocol"))
    found = subprocess.run(
        [sys.executable, "-c", _SCORE],
        input="\n".join(lines),
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    version, *scores = map(int, found.stdout.split())
    return version, scores


def figures(listed: Sequence[Case], scorers: int, scores: Sequence[int]) -> dict[str, Any]:
    """Return the shares accepted: of all, of each dataset, and the forms that are not always accepted."""
    total, accepted = Counter[tuple[bool, str]](), Counter[tuple[bool, str]]()
    forms, refused = Counter[str](), Counter[str]()
    for case, level in zip(listed, scores, strict=True):
        key = (bool(case.form), case.task.dataset)
        total[key] += 1
        accepted[key] += level
        if case.form:
            forms[case.form] += 1
            refused[case.form] += 1 - level
    datasets = {
        dataset: {
            "right": total[True, dataset],
            "accepted": round(accepted[True, dataset] / total[True, dataset], 4),
            "wrong": total[False, dataset],
            "wrong_accepted": accepted[False, dataset],
        }
        for dataset in sorted({dataset for _, dataset in total})
    }
    right = sum(each["right"] for each in datasets.values())
    return {
        "scorer_version": scorers,
        "right": right,
        "accepted": round(sum(count for (is_right, _), count in accepted.items() if is_right) / right, 4),
        "wrong": sum(each["wrong"] for each in datasets.values()),
        "wrong_accepted": sum(each["wrong_accepted"] for each in datasets.values()),
        "datasets": datasets,
        "refused_forms": {name: round(count / forms[name], 4) for name, count in sorted(refused.items()) if count},
    }
