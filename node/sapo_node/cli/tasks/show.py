"""An item of a task as a model sees it, its reference answer, and what an answer to it earns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sapo_node.cli.tasks.chosen import Chosen
from sapo_node.groups.prompt import Prompt, chat, task_name
from sapo_node.tasks import Task, score, task_digest, worked_example
from sapo_node.tasks.answer import ANSWER_BEGIN, ANSWER_END, extract_answer
from sapo_node.tasks.score import refusal
from sapo_node.verification.catalogue import example_requests, examples_from
from sapo_node.verification.sandbox.requests import Scored
from sapo_protocol import TaskSpec, load_manifest
from sapo_protocol.limits import MAX_LEVELS

_FORMS = ("**{}**", "\\boxed{{{}}}", "The answer is {}.", "`{}`", '"{}"')
_FORMS_OF_LINES = ("```\n{}\n```", "**{}**")
"""Ways to write an answer, of which some are accepted."""

_SHOWN = 3
"""Forms to show, at most."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the user with its level."""

    text: str
    level: int
    reason: str


@dataclass(frozen=True, slots=True)
class View:
    """An item as a model sees it, and what only the node knows."""

    dataset: str
    config: Mapping[str, Any]
    levels: int
    seed: int
    messages: list[dict[str, str]]
    """The messages of the chat: `role` and `content`."""
    answer: str
    forms: list[str]
    """Other ways to write the reference answer that earn as much."""
    earned: int
    """The level of the reference answer itself. Some datasets have references that are incorrect."""
    given: Answer | None


def view(task: Chosen, seed: int, examples: int, given: str | None) -> View:
    """Build an item with its worked examples, and score the answer `given`. Raises TaskError if there is no item."""
    item = task.build(seed)
    earned = _earned(item, item.answer, task.levels)
    return View(
        task.dataset,
        task.config,
        task.levels,
        seed,
        chat(_prompt(task, item, examples)),
        item.answer,
        _accepted(item, task.levels) if earned == task.levels else [],
        earned,
        None if given is None else _judged(item, given, task.levels),
    )


def _prompt(task: Chosen, item: Task, examples: int) -> Prompt:
    """Return the prompt with the worked examples that a node shows its model."""
    manifest = replace(load_manifest("interop"), tasks=(TaskSpec(task.dataset, task.config, weight=1),))
    built = [task.build(each.seed) for each in example_requests(manifest, examples)]
    results = [Scored(each.prompt, task_digest(each.prompt, each.answer), (), worked_example(each)) for each in built]
    found = examples_from(manifest, results, examples)
    return found.prompt(task_name(manifest, task.dataset, task.config), item.prompt)


def _earned(item: Task, answer: str, levels: int) -> int:
    return score(item, f"{ANSWER_BEGIN}{answer}{ANSWER_END}", levels)


def _accepted(item: Task, levels: int) -> list[str]:
    is_table = "\n" in item.answer
    written = [form.format(item.answer) for form in (_FORMS_OF_LINES if is_table else _FORMS)]
    if is_table:
        written.insert(0, "[" + ", ".join(f"[{', '.join(line.split())}]" for line in item.answer.split("\n")) + "]")
    return [each for each in written if _earned(item, each, levels) == levels][:_SHOWN]


def _judged(item: Task, given: str, levels: int) -> Answer:
    completion = given if ANSWER_BEGIN in given else f"{ANSWER_BEGIN}{given}{ANSWER_END}"
    level = score(item, completion, levels)
    return Answer(given, level, _reason(item, completion, level, levels))


def _reason(item: Task, completion: str, level: int, levels: int) -> str:
    if why := refusal(item, extract_answer(completion)):
        return why
    if level == levels:
        return "it is correct"
    if level:
        return f"at least {level} of {levels} parts of it are right; peers train on correct completions only"
    if levels > 1 and (finest := score(item, completion, MAX_LEVELS)):
        return f"about {finest / MAX_LEVELS:.2f} of it is right, which is less than one of {levels} levels"
    return f"the scorer of {item.dataset} finds it incorrect"
