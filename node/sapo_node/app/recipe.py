"""The defaults of a model: what is trained of it, how fast, in which format, and how it is asked.

| model                | trained     | rate | format              | tokens | examples |
|----------------------|-------------|------|---------------------|--------|----------|
| seed, or below SMALL | all weights | 2e-4 | float32             | 80     | 0        |
| below MEDIUM         | LoRA        | 4e-4 | bfloat16, if native | 32     | 3        |
| larger               | LoRA        | 1e-4 | bfloat16, if native | 256    | 3        |

A small pretrained model answers in a few tokens or not at all. A larger one may think before it answers. LoRA takes
about ten times the rate of all weights (Schulman et al. 2025, "LoRA Without Regret"), so where the operator chose to
train all weights, the rate is a tenth of that in the table.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from sapo_node.app.config import Config
from sapo_node.groups.messages import Auto, Dtype
from sapo_node.sampling.mix import AUTO

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
