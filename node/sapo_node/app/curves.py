"""Runs a child process for each target of `log_to`, which writes the curves of the node there."""

import json
import sys
from collections.abc import Callable

import trio

from sapo_node.app.node import Node
from sapo_node.app.state import StateFolder
from sapo_node.groups.codec import to_json
from sapo_node.observability.curves.request import FollowRequest, Run
from sapo_node.processes.child import ChildProcess

STOP_SECONDS = 5.0
"""Seconds that a target has to write the last points when the node stops."""
_MAX_LINE = 1_000
"""Bytes of the reason why a target failed."""


def start_curves(nursery: trio.Nursery, node: Node, folder: StateFolder, tell: Callable[[str], None]) -> None:
    """Write the rounds and evaluations that follow those of now. `tell` gets one notice if a target fails."""
    steps = [each["step"] for each in node.history.rounds(1)]
    evaluations = [each["step"] for each in node.history.evaluations()]
    run = Run(
        folder=str(folder.path / "curves"),
        project=f"sapo-{node.swarm.manifest.name}",
        name=f"{node.config.model_label.replace('/', '-')}-{node.peer_id[-8:]}",
    )
    for target in node.config.log_to:
        request = FollowRequest(target, str(folder.database), run, max([0, *steps]), max([-1, *evaluations]))
        nursery.start_soon(_follow, request, tell)


async def _follow(request: FollowRequest, tell: Callable[[str], None]) -> None:
    arguments = json.dumps(to_json(request))
    child = ChildProcess([sys.executable, "-P", "-m", "sapo_node.observability.curves", arguments])
    said = b""
    try:
        async for part in child.stdout:
            said = (said + part)[:_MAX_LINE]
        reason = said.decode("utf-8", "replace") or "its process died"
        tell(f"no more curves go to {request.target} ({reason}); the node goes on without")
    finally:
        with trio.CancelScope(shield=True):
            await child.end(grace=STOP_SECONDS)
