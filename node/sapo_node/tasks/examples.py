"""Worked examples: a correct completion of a task, as a model could write it.

A completion that restates the problem before the answer is easier to imitate than a bare answer: on SmolLM2-135M it
raises the base rate of one-digit products from 0.08 to 0.21. Where this module knows no working for a dataset, the
example is the bare answer.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from sapo_node.tasks import plugins
from sapo_node.tasks.answer import ANSWER_BEGIN, ANSWER_END
from sapo_node.tasks.score import score
from sapo_node.tasks.task import Task

_EXPRESSION = re.compile(r"(?:[(-][( -]*)?[0-9][0-9 ()+*/-]*")
_COUNTED = re.compile(r"([0-9]+) [a-z ]+?(?=,|\?)")


def worked_example(task: Task) -> str:
    """Return a completion with the reference answer of a task, and with working if this module knows any.

    A dataset of another package writes its own with the function `example(prompt, answer)`, if its module has one. The
    text is empty if it earns no reward: the reference answer of some datasets is often incorrect.
    """
    if task.answers is not None:
        shown = _tagged(task.answer)
    elif plugins.is_foreign(task.dataset):
        shown = plugins.example(task.dataset, task.prompt, task.answer) or _tagged(task.answer)
    else:
        shown = _WORKINGS.get(task.dataset, _none)(task) + _tagged(task.answer)
    return shown if score(task, shown) else ""


def _tagged(answer: str) -> str:
    return f"{ANSWER_BEGIN}{answer}{ANSWER_END}"


def _none(task: Task) -> str:
    del task
    return ""


def _restated(task: Task) -> str:
    """`8 * 2 = ` for a prompt with the expression 8 * 2: the longest expression in the prompt."""
    found = [match[0].strip() for match in _EXPRESSION.finditer(task.prompt)]
    longest = max(found, key=len, default="")
    return f"{longest} = " if longest else ""


def _legs(task: Task) -> str:
    """`9 * 6 = ` for 9 cockroaches. With several kinds of animals the prompt does not say how many legs each has."""
    counted = _COUNTED.findall(task.prompt)
    if len(counted) != 1 or int(counted[0]) == 0:
        return ""
    return f"{counted[0]} * {int(task.answer) // int(counted[0])} = "


_WORKINGS: Mapping[str, Callable[[Task], str]] = MappingProxyType(
    {
        "basic_arithmetic": _restated,
        "chain_sum": _restated,
        "products": _restated,
        "interop_sum": _restated,
        "leg_counting": _legs,
    }
)
