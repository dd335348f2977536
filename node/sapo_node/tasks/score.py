"""Scores a completion: finds its answer, bounds it, takes off its wrappers, and asks the scorer of its dataset."""

import math
import re

from sapo_node.tasks import plugins
from sapo_node.tasks.answer import extract_answer
from sapo_node.tasks.datasets import scorer_of
from sapo_node.tasks.scorers.rows import ROW_SCORERS
from sapo_node.tasks.task import Task, Verdict
from sapo_node.tasks.wrappers import stages
from sapo_protocol import AnswerKind

SCORER_VERSION = 2
"""Version of all scorers in this module. A manifest names a version for each task."""

MAX_ANSWER = 4_096
"""Characters of an answer, at most. A longer answer is incorrect."""

# ANS-1: controls and blanks other than space, tab, line feed and carriage return, line separators and marks of
# direction. `str.isprintable` would make rewards depend on the version of Python, whose table of assigned characters
# grows.
_FORBIDDEN = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\u061c\u1680\u2000-\u200a\u200e\u200f\u2028-\u202f\u205f\u2066-\u2069\u3000\ud800-\udfff]"
)


def score(task: Task, completion: str, levels: int = 1) -> int:
    """Return the level, 0 to `levels`, that the last `<answer>...</answer>` of `completion` earns.

    Level = floor(levels * right share of the answer), so only a correct answer earns `levels`. The right share is that
    of the best stage of the answer (`wrappers.stages`). This raises for no completion, unless another package's scorer
    returns no verdict or lacks what it needs.
    """
    answer = extract_answer(completion)
    if refusal(task, answer) or answer is None:
        return 0
    answer = answer.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    best: Verdict = False
    for stage in stages(answer):
        best = max(best, _verdict(task, stage))
        if best == 1:
            break
    return math.floor(levels * best)


def longest_answer(task: Task) -> int:
    """Return the number of characters of an answer, at most. An answer may be the text of a choice."""
    texts = task.metadata["choices"] if task.answers is AnswerKind.CHOICE else (task.answer,)
    return min(MAX_ANSWER, 4 * max(map(len, texts)) + 64)


def refusal(task: Task, answer: str | None) -> str:
    """Return the reason to ask no scorer about an answer (ANS-1), for people; empty if there is none."""
    most = longest_answer(task)
    if answer is None:
        return "the completion has no <answer> and </answer>"
    if not answer:
        return "there is nothing between the tags"
    if len(answer) > most:
        return f"it has {len(answer):,} characters; at most {most:,} are read for this reference answer"
    if found := _FORBIDDEN.search(answer):
        return f"it has the character U+{ord(found[0]):04X}, which no answer may have"
    return ""


def _verdict(task: Task, answer: str) -> Verdict:
    if task.answers is not None:
        return ROW_SCORERS[task.answers](task, answer)
    if plugins.is_foreign(task.dataset):
        return plugins.earns(task.dataset, task.prompt, task.answer, answer)
    return scorer_of(task.dataset)(task, answer)
