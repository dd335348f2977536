"""Derives the options of the learner process from the configuration, the manifest and the state folder."""

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.app.state import StateFolder
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.client import require_installed
from sapo_protocol import Manifest


def learner_options(config: Config, manifest: Manifest, folder: StateFolder) -> LearnerOptions:
    """Return the options of the learner process. Raises LocalError if torch is not installed."""
    require_installed()
    recipe = recipe_of(config)
    return LearnerOptions(
        checkpoints=str(folder.checkpoints),
        model=config.model,
        lora=recipe.lora,
        lora_layers=recipe.lora_layers,
        thinking=config.thinking,
        dtype=recipe.dtype,
        gradient_checkpointing=config.gradient_checkpointing,
        device=config.device,
        threads=config.threads,
        learning_rate=recipe.learning_rate,
        warmup=config.warmup,
        decay_rounds=config.decay_rounds,
        groups=config.groups,
        completions=manifest.completions,
        max_tokens=recipe.max_tokens,
        max_completion_bytes=manifest.max_completion_bytes,
        filters=config.filters,
        server="" if config.generate == "off" else config.generate,
    )
