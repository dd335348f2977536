"""The catalogue: each dataset of reasoning-gym that a manifest may name, with its module and this project's scorer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sapo_node.tasks.logic import follows_from_premises
from sapo_node.tasks.scorers import (
    is_calendar_answer,
    is_decimal,
    is_integer,
    is_matrix,
    is_row,
    is_simplified_fraction,
    is_text,
    is_text_in_any_case,
)
from sapo_node.tasks.task import Task, Verdict

Scorer = Callable[[Task, str], Verdict]
"""Says of an answer, without blanks at its ends, whether it is correct, or which share of it is right."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset of reasoning-gym."""

    module: str
    """Its module inside the package reasoning_gym."""
    scorer: Scorer
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of its configuration that this project changes, unless a manifest sets them: a floating-point number, for
    instance, which a manifest cannot hold, or a size at which no constant answer pays."""
    graded: bool = False
    """True if the scorer returns shares, so that a manifest may give the task more than one level."""


DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        "arc_1d": Dataset("arc.arc_1d", is_row),
        "base_conversion": Dataset("algorithmic.base_conversion", is_text_in_any_case, {"min_value": 1}),
        "basic_arithmetic": Dataset("arithmetic.basic_arithmetic", is_integer),
        "bf": Dataset("code.bf", is_text),
        "binary_matrix": Dataset("algorithmic.binary_matrix", is_matrix),
        "calendar_arithmetic": Dataset("arithmetic.calendar_arithmetic", is_calendar_answer),
        "chain_sum": Dataset("arithmetic.chain_sum", is_integer),
        "decimal_arithmetic": Dataset("arithmetic.decimal_arithmetic", is_decimal),
        "fraction_simplification": Dataset("arithmetic.fraction_simplification", is_simplified_fraction),
        "leg_counting": Dataset("arithmetic.leg_counting", is_integer),
        "products": Dataset("arithmetic.products", is_integer),
        "propositional_logic": Dataset("logic.propositional_logic", follows_from_premises),
        "spell_backward": Dataset("algorithmic.spell_backward", is_text_in_any_case),
    }
)
"""The datasets of reasoning-gym that a manifest may name. Their items are identical on every machine."""

_INTEROP: Mapping[str, Scorer] = MappingProxyType(
    {"interop_largest": is_integer, "interop_reverse": is_text, "interop_sum": is_integer}
)


def scorer_of(dataset: str) -> Scorer:
    """Return the scorer of a dataset of reasoning-gym or of the wire spec. Raises KeyError for another one."""
    return _INTEROP[dataset] if dataset in _INTEROP else DATASETS[dataset].scorer
