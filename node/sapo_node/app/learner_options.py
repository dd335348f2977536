"""Derives the options of the learner process from the configuration, the manifest and the state folder."""

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.app.state import StateFolder
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.client import require_installed
from sapo_protocol import LocalError, Manifest

MAX_ROUND_TOKENS = 2**20
"""Tokens that the completions of one round may have: 16 groups of 16 completions of 4,096 tokens. Their batch fits into
one value of the database beside the most text of others (DRAWN_BYTES). With `replay` a batch has as much once more, so
the half is allowed.
"""


def learner_options(config: Config, manifest: Manifest, folder: StateFolder) -> LearnerOptions:
    """Return the options of the learner process. Raises LocalError if torch is not installed."""
    require_installed()
    recipe = recipe_of(config)
    return LearnerOptions(
        checkpoints=str(folder.checkpoints),
        model=config.model,
        lora=recipe.lora,
        lora_layers=config.lora_layers,
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


def require_storable(config: Config, completions: int) -> None:
    """Raises LocalError if a node that trains may generate more than MAX_ROUND_TOKENS in a round of groups of so many
    completions.
    """
    max_tokens = recipe_of(config).max_tokens
    tokens = config.local * completions * max_tokens if config.train else 0
    most = MAX_ROUND_TOKENS // 2 if config.replay else MAX_ROUND_TOKENS
    if tokens > most:
        raise LocalError(
            f"{config.local} local groups of {completions} completions of up to {max_tokens:,} tokens may have "
            f"{tokens:,}; a round may have {most:,}, so lower --local or --max-tokens"
        )
