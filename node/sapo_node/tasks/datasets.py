"""The catalogue: each dataset of reasoning-gym that a manifest may name, with its module and this project's scorer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sapo_node.tasks.checkers.assignments import (
    is_coloring,
    is_cryptarithm,
    is_knights_and_knaves,
    share_of_groups,
)
from sapo_node.tasks.checkers.durations import is_duration
from sapo_node.tasks.checkers.expressions import (
    is_antiderivative,
    is_countdown,
    is_product,
    share_of_complex,
    share_of_geometry,
)
from sapo_node.tasks.checkers.grids import is_kakurasu, is_n_queens, is_survo, share_of_cells
from sapo_node.tasks.checkers.plans import is_hanoi_plan, is_jugs_plan, is_shortest_path, opens_lock, share_of_boxes
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
    per_seed: bool = False
    """True if one object cannot yield the items of all seeds: they come from its size or from the global generator of
    random numbers."""


DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        "advanced_geometry": Dataset("geometry.advanced_geometry", share_of_geometry, graded=True),
        "arc_1d": Dataset("arc.arc_1d", is_row),
        "base_conversion": Dataset("algorithmic.base_conversion", is_text_in_any_case, {"min_value": 1}),
        "basic_arithmetic": Dataset("arithmetic.basic_arithmetic", is_integer),
        "bf": Dataset("code.bf", is_text),
        "binary_matrix": Dataset("algorithmic.binary_matrix", is_matrix),
        "calendar_arithmetic": Dataset("arithmetic.calendar_arithmetic", is_calendar_answer),
        "chain_sum": Dataset("arithmetic.chain_sum", is_integer),
        "complex_arithmetic": Dataset("algebra.complex_arithmetic", share_of_complex, graded=True),
        "countdown": Dataset("games.countdown", is_countdown),
        "cryptarithm": Dataset("algorithmic.cryptarithm", is_cryptarithm),
        "decimal_arithmetic": Dataset("arithmetic.decimal_arithmetic", is_decimal),
        "fraction_simplification": Dataset("arithmetic.fraction_simplification", is_simplified_fraction),
        "futoshiki": Dataset("games.futoshiki", share_of_cells, {"max_board_size": 5}, graded=True),
        "game_of_life": Dataset(
            "algorithmic.game_of_life", is_matrix, {"grid_size_x": 8, "grid_size_y": 8, "filled_cells": 20}
        ),
        "graph_color": Dataset("algorithmic.graph_color", is_coloring, {"edge_probability": 0.25}),
        "group_anagrams": Dataset("algorithmic.group_anagrams", share_of_groups, graded=True),
        "gsm_symbolic": Dataset("arithmetic.gsm_symbolic.gsm_symbolic", is_integer, per_seed=True),
        "jugs": Dataset("algorithmic.jugs", is_jugs_plan),
        "kakurasu": Dataset("games.kakurasu", is_kakurasu),
        "knights_knaves": Dataset("logic.knights_knaves", is_knights_and_knaves, {"n_people": 3}),
        "leg_counting": Dataset("arithmetic.leg_counting", is_integer),
        "list_functions": Dataset("induction.list_functions.list_functions", is_matrix, per_seed=True),
        "mini_sudoku": Dataset("games.mini_sudoku", share_of_cells, graded=True),
        "n_queens": Dataset("games.n_queens", is_n_queens),
        "polynomial_multiplication": Dataset("algebra.polynomial_multiplication", is_product),
        "products": Dataset("arithmetic.products", is_integer),
        "propositional_logic": Dataset("logic.propositional_logic", follows_from_premises),
        "quantum_lock": Dataset("graphs.quantum_lock", opens_lock, {"difficulty": 7}),
        "shortest_path": Dataset(
            "graphs.shortest_path", is_shortest_path, {"p_blocked": 0.25, "min_rows": 6, "min_cols": 6}
        ),
        "simple_integration": Dataset("algebra.simple_integration", is_antiderivative),
        "sokoban": Dataset(
            "games.sokoban", share_of_boxes, {"max_w": 7, "max_h": 7, "min_boxes": 3, "max_boxes": 3}, graded=True
        ),
        "spell_backward": Dataset("algorithmic.spell_backward", is_text_in_any_case),
        "sudoku": Dataset("games.sudoku", share_of_cells, graded=True),
        "survo": Dataset("games.survo", is_survo),
        "time_intervals": Dataset(
            "arithmetic.time_intervals",
            is_duration,
            {"task_types": ["time", "time_seconds", "date", "datetime", "datetime_tz"]},
        ),
        "tower_of_hanoi": Dataset("games.tower_of_hanoi", is_hanoi_plan, {"max_disks": 5}),
    }
)
"""The datasets of reasoning-gym that a manifest may name. Their items are identical on every machine."""

_INTEROP: Mapping[str, Scorer] = MappingProxyType(
    {"interop_largest": is_integer, "interop_reverse": is_text, "interop_sum": is_integer}
)


def scorer_of(dataset: str) -> Scorer:
    """Return the scorer of a dataset of reasoning-gym or of the wire spec. Raises KeyError for another one."""
    return _INTEROP[dataset] if dataset in _INTEROP else DATASETS[dataset].scorer
