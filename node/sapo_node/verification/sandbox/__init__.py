"""The sandbox: tasks are rebuilt and peers' completions scored in a process that can do nothing else."""

from sapo_node.verification.sandbox.client import Sandbox
from sapo_node.verification.sandbox.messages import Scored, ScoreRequest

__all__ = ["Sandbox", "ScoreRequest", "Scored"]
