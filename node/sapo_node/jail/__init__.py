"""The jail: tasks are rebuilt and peers' completions scored in a process that can do nothing else."""

from sapo_node.jail.client import Jail
from sapo_node.jail.messages import Scored, ScoreRequest

__all__ = ["Jail", "ScoreRequest", "Scored"]
