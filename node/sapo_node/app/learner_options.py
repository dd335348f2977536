"""What the configuration of a node, its swarm and its state folder mean for the learner process."""

from sapo_node.app.config import Config
from sapo_node.app.state import StateFolder
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.client import require_installed
from sapo_protocol import Manifest


def learner_options(config: Config, manifest: Manifest, folder: StateFolder) -> LearnerOptions:
    """What the learner process is told at its start. Raises LocalError where none can be started."""
    require_installed()
    return LearnerOptions(
        checkpoints=str(folder.checkpoints),
        model=config.model,
        lora=config.lora,
        dtype=config.dtype,
        gradient_checkpointing=config.gradient_checkpointing,
        device=config.device,
        threads=config.threads,
        learning_rate=config.learning_rate,
        warmup=config.warmup,
        groups=config.groups,
        completions=manifest.completions,
        max_tokens=config.max_tokens,
        max_completion_bytes=manifest.max_completion_bytes,
        filters=config.filters,
    )
