"""Rebuilds any task of the catalogue from (dataset, config, seed), and scores completions by this project's rules."""

from sapo_node.verification.tasks.build import build_task, prepare
from sapo_node.verification.tasks.examples import worked_example
from sapo_node.verification.tasks.scorers import DATASETS, MAX_COMPLETION, SCORER_VERSION, score
from sapo_node.verification.tasks.task import Task, TaskError, task_digest

__all__ = [
    "DATASETS",
    "MAX_COMPLETION",
    "SCORER_VERSION",
    "Task",
    "TaskError",
    "build_task",
    "prepare",
    "score",
    "task_digest",
    "worked_example",
]
