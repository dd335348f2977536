"""Which targets there are, and what the node asks of the child process of one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from sapo_node.processes.extras import command_for
from sapo_protocol import LocalError

LIBRARIES: Mapping[str, str] = {"jsonl": "", "tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
"""By target the package that it needs, which has an extra of its name; empty if it needs none."""


def require_installed(targets: Iterable[str]) -> None:
    """Raises LocalError if the library of a target is missing."""
    for target in targets:
        library = LIBRARIES[target]
        if library and find_spec(library) is None:
            raise LocalError(f"--log-to {target} needs {library}, which is missing: {command_for(library)}")


@dataclass(frozen=True, slots=True)
class Run:
    """The names under which a node writes."""

    folder: str
    """Where a target that writes files puts them."""
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """Write what comes after a round and an evaluation."""

    target: str
    database: str
    """The path of the node's database."""
    run: Run
    round: int
    """Step of the last round that is not to be written."""
    evaluation: int
    """Step of the last evaluation that is not to be written; -1 if there is none."""
