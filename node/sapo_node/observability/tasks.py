"""Says per task what the model learns from its own groups, and names the tasks that teach it nothing.

GRPO learns from a local group only if the group is informative: its completions earn different levels. A task on which
the model is never correct, or always, costs its share of the rounds and teaches nothing.
"""

from dataclasses import dataclass

from sapo_node.sampling.external import saved_pass_rates
from sapo_node.sampling.weights import TaskSignal
from sapo_node.storage.database import Database

MAX_QUIET_GROUPS = 64
"""Local groups in a row without an informative one, at which the node warns: 16 rounds of 4 local groups. If one group
in 20 is informative, the chance of so many without one is 4 %.
"""


@dataclass(frozen=True, slots=True)
class TaskView(TaskSignal):
    """One task of the swarm, as a node that trains finds it."""

    advice: str
    """For a task with MAX_QUIET_GROUPS quiet groups, what happened and what to do; else empty."""


def tasks_of(database: Database) -> list[TaskView]:
    """Return the tasks that the node has had, by name. Raises StateError if the state is damaged."""
    return [
        TaskView(each.task, each.pass_rate, each.informative, each.quiet_groups, _advice(each))
        for each in saved_pass_rates(database).signals()
    ]


def _advice(signal: TaskSignal) -> str:
    if signal.quiet_groups < MAX_QUIET_GROUPS:
        return ""
    is_hard = signal.pass_rate < 0.5
    return (
        f"{signal.task} teaches this model nothing, because it is too {'hard' if is_hard else 'easy'}: in each of the "
        f"last {signal.quiet_groups} local groups all completions earned the same. `sapo-node init --dry-run` measures "
        f"each task. {'Give more --examples, or join' if is_hard else 'Join'} a swarm whose manifest gives the task "
        f"{'an easier' if is_hard else 'a harder'} config or a lower weight."
    )
