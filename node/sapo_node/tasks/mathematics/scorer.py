"""Scores a task whose reference is mathematics."""

from sapo_node.tasks.mathematics.equality import equal
from sapo_node.tasks.task import Task


def is_math(task: Task, answer: str) -> bool:
    """Return whether the answer states the same mathematical object as the reference: see `equal`."""
    return equal(task.answer, answer)
