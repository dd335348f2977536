"""The main process's side of an export: the request, and the child that writes the folder. Never imports torch."""

import json
import subprocess
import sys
from dataclasses import dataclass

from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.card import CardFacts
from sapo_node.learner.client import offline
from sapo_protocol import LocalError


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The model to export, and the folder to write."""

    options: LearnerOptions
    output: str
    """The new folder."""
    facts: CardFacts
    """For the model card."""
    best: bool = False
    """True for the weights of the best evaluation, false for those of the newest checkpoint."""
    adapter_only: bool = False
    """True to write the LoRA adapters alone, false to merge them into a whole model."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The step of the weights, and a note about the folder, if any."""

    step: int
    note: str | None = None


def run_export(request: ExportRequest) -> Exported:
    """Write the folder in a child process. Raises LocalError, in one line, if that fails."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sapo_node.learner.export", json.dumps(to_json(request))],
        env=offline(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise LocalError((done.stderr.strip().splitlines() or ["the export process died"])[-1])
    return from_json(Exported, json.loads(done.stdout))
