"""The defaults of a model: what is trained of it, how fast, in which format, and how it is asked. And the options of
the learner process, which follow from them.

| model                | trained     | rate | format              | tokens | examples |
|----------------------|-------------|------|---------------------|--------|----------|
| seed, or below SMALL | all weights | 2e-4 | float32             | 80     | 0        |
| below MEDIUM         | LoRA        | 4e-4 | bfloat16, if native | 32     | 3        |
| larger               | LoRA        | 1e-4 | bfloat16, if native | 256    | 3        |

A small pretrained model answers in a few tokens or not at all. A larger one may think before it answers. LoRA takes
about ten times the rate of all weights (Schulman et al. 2025, "LoRA Without Regret"), so if the operator chose to train
all weights, the rate is a tenth of that in the table.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from sapo_node.app.config import AUTO, Config
from sapo_node.groups.messages import Auto, Dtype, LearnerOptions
from sapo_node.learner.client import require_installed
from sapo_protocol import LocalError, Manifest

SMALL = 50_000_000
MEDIUM = 400_000_000
"""Parameters of a model."""
RANK = 16
"""Rank of LoRA adapters."""
EXAMPLES = 3
"""Worked examples for a pretrained model. A model behind an endpoint is taken to be one."""
ALL_WEIGHTS = 0.1
"""The learning rate of all weights, as a factor on that of adapters."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that depend on the model. The names are those of the configuration."""

    lora: int
    learning_rate: float
    dtype: Dtype
    max_tokens: int
    examples: int


_SMALL = Recipe(lora=0, learning_rate=2e-4, dtype="float32", max_tokens=80, examples=0)


def recipe_of(config: Config) -> Recipe:
    """Return the settings of a node: those of its configuration, and for `auto` those of its model, if it trains one.

    Raises ModelError if the configuration names no model folder.
    """
    default = _of_model(config.model) if config.train else _SMALL
    lora = _chosen(config.lora, default.lora)
    rate = default.learning_rate * (ALL_WEIGHTS if default.lora and not lora else 1)
    return Recipe(
        lora=lora,
        learning_rate=_chosen(config.learning_rate, rate),
        dtype=default.dtype if config.dtype == AUTO else config.dtype,
        max_tokens=_chosen(config.max_tokens, default.max_tokens),
        examples=_chosen(config.examples, default.examples),
    )


def way_of_asking(config: Config) -> str:
    """Return the settings that change how a model is asked: figures with other settings cannot be compared."""
    recipe = recipe_of(config)
    return f"max_tokens={recipe.max_tokens}, examples={recipe.examples}, thinking={str(config.thinking).lower()}"


def _chosen(value: _Value | Auto, default: _Value) -> _Value:
    return default if value == AUTO else value


@cache
def _of_model(model: str) -> Recipe:
    if model == "seed":
        return _SMALL
    # Imported here: it takes half a second, which a node with the seed policy need not wait.
    from sapo_node.learner.folder import ModelError, model_folder, parameters_of  # noqa: PLC0415

    folder = model_folder(model)
    try:
        parameters = parameters_of(folder)
    except ModelError:
        return _SMALL  # the folder has no whole weights, and the learner refuses it
    if parameters < SMALL:
        return _SMALL
    return Recipe(
        lora=RANK,
        learning_rate=4e-4 if parameters < MEDIUM else 1e-4,
        dtype=AUTO,
        max_tokens=32 if parameters < MEDIUM else 256,
        examples=EXAMPLES,
    )


MAX_ROUND_TOKENS = 2**20
"""Tokens that the completions of one round may have: 16 groups of 16 completions of 4,096 tokens. Their batch fits into
one value of the database beside the most text of peers (DRAWN_BYTES). With `replay` a batch has as much once more, so
the half is allowed.
"""


def learner_options(config: Config, manifest: Manifest, checkpoints: Path) -> LearnerOptions:
    """Return the options of the learner process. Raises LocalError if torch is not installed."""
    require_installed()
    recipe = recipe_of(config)
    return LearnerOptions(
        checkpoints=str(checkpoints),
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
    """Raise LocalError if a node that trains may generate more than MAX_ROUND_TOKENS in a round, with `completions` in
    each group.
    """
    max_tokens = recipe_of(config).max_tokens
    tokens = config.local * completions * max_tokens if config.train else 0
    most = MAX_ROUND_TOKENS // 2 if config.replay else MAX_ROUND_TOKENS
    if tokens > most:
        raise LocalError(
            f"{config.local} local groups of {completions} completions of up to {max_tokens:,} tokens may have "
            f"{tokens:,}; a round may have {most:,}, so lower --local or --max-tokens"
        )
