"""The sandbox: a process that rebuilds tasks, scores peers' completions, and has no other rights."""

from sapo_node.verification.sandbox.client import Sandbox
from sapo_node.verification.sandbox.messages import Scored, ScoreRequest

__all__ = ["Sandbox", "ScoreRequest", "Scored"]
