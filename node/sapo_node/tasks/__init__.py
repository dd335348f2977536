"""Rebuilds any task of the catalogue from (dataset, config, seed), and scores completions by this project's rules."""

from sapo_node.tasks.answer import MAX_COMPLETION
from sapo_node.tasks.build import build_task, prepare
from sapo_node.tasks.datasets import DATASETS
from sapo_node.tasks.examples import worked_example
from sapo_node.tasks.score import SCORER_VERSION, score
from sapo_node.tasks.task import Task, TaskError, Verdict, task_digest

__all__ = [
    "DATASETS",
    "MAX_COMPLETION",
    "SCORER_VERSION",
    "Task",
    "TaskError",
    "Verdict",
    "build_task",
    "prepare",
    "score",
    "task_digest",
    "worked_example",
]
