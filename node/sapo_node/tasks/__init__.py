"""Builds tasks and scores completions, for a node and for any other program. It needs neither torch nor the network.

>>> from sapo_node.tasks import build_task, score
>>> task = build_task("interop_sum", {"max": 9}, seed=7)
>>> task.prompt, task.answer
('What is 1 + 2?', '3')
>>> score(task, "1 + 2 = <answer>3</answer>")
1
>>> score(task, "1 + 2 = <answer>12</answer>", levels=4)
0

`build_task` returns the same task for a dataset, configuration and seed on every machine. `score` returns a level from
0 to `levels`, for any text. `catalogue` lists the datasets. Those of reasoning-gym need the package reasoning-gym.
"""

from sapo_node.tasks.answer import MAX_COMPLETION
from sapo_node.tasks.build import build_task, prepare
from sapo_node.tasks.catalogue import Entry, catalogue
from sapo_node.tasks.datasets import DATASETS
from sapo_node.tasks.examples import worked_example
from sapo_node.tasks.score import SCORER_VERSION, score
from sapo_node.tasks.task import Task, TaskError, Verdict, task_digest

__all__ = [
    "DATASETS",
    "MAX_COMPLETION",
    "SCORER_VERSION",
    "Entry",
    "Task",
    "TaskError",
    "Verdict",
    "build_task",
    "catalogue",
    "prepare",
    "score",
    "task_digest",
    "worked_example",
]
