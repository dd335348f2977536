"""The catalogue: each dataset of reasoning-gym that a manifest may name, with its module and this project's scorer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sapo_node.tasks.scorers.assignments import (
    is_coloring,
    is_cryptarithm,
    is_knights_and_knaves,
    share_of_groups,
)
from sapo_node.tasks.scorers.durations import is_duration
from sapo_node.tasks.scorers.expressions import (
    is_antiderivative,
    is_countdown,
    is_product,
    share_of_complex,
    share_of_geometry,
)
from sapo_node.tasks.scorers.grids import is_kakurasu, is_n_queens, is_survo, share_of_cells
from sapo_node.tasks.scorers.lists import (
    has_first_numbers,
    has_first_words,
    is_list_of_numbers,
    is_list_of_signs,
    is_list_of_words,
    is_row,
)
from sapo_node.tasks.scorers.logic import correct_answer, follows_from_premises
from sapo_node.tasks.scorers.matrices import has_rows, is_grid_of_decimals, is_grid_of_signs, is_matrix
from sapo_node.tasks.scorers.numbers import (
    has_prime_factors,
    is_angle,
    is_calendar_answer,
    is_decimal,
    is_hexadecimal,
    is_integer,
    is_nearest_thousandth,
    is_probability_of_heads,
    is_simplified_fraction,
    is_value_of_variable,
)
from sapo_node.tasks.scorers.plans import is_hanoi_plan, is_jugs_plan, is_shortest_path, opens_lock, share_of_boxes
from sapo_node.tasks.scorers.words import (
    has_words,
    has_words_in_any_case,
    is_palindrome,
    is_relation,
    is_text,
    is_text_in_any_case,
    letters_in_place,
)
from sapo_node.tasks.task import Scorer, Task


def _as_built(task: Task) -> Task:
    return task


def _with_floored_quotients(task: Task) -> Task:
    """Say in the prompt of a quotient that it is floored, since the reference is computed with Python's `//`."""
    return replace(task, prompt=f"{task.prompt} Each quotient is floored.") if "/" in task.prompt else task


def _with_correct_answer(task: Task) -> Task | None:
    """Replace the dataset's own example, which is often incorrect. None if no answer is correct."""
    answer = correct_answer(task.prompt)
    return replace(task, answer=answer) if answer else None


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
    mend: Callable[[Task], Task | None] = _as_built
    """Changes a task that the library got wrong. None for a task that no change saves: then the next item is used."""


DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        "ab": Dataset("algorithmic.ab", is_list_of_signs, {"length": 11}),
        "advanced_geometry": Dataset("geometry.advanced_geometry", share_of_geometry, graded=True),
        "aiw": Dataset("logic.aiw", is_integer, {"max_entities": 12}),
        "arc_1d": Dataset("arc.arc_1d", is_row),
        "arc_agi": Dataset("arc.arc_agi", is_matrix, {"use_eval": False}),
        "base_conversion": Dataset("algorithmic.base_conversion", is_text_in_any_case, {"min_value": 1}),
        "basic_arithmetic": Dataset("arithmetic.basic_arithmetic", is_integer, mend=_with_floored_quotients),
        "bf": Dataset("code.bf", is_text),
        "binary_alternation": Dataset(
            "algorithmic.binary_alternation", is_integer, {"p_solvable": 0.9, "min_n": 30, "max_n": 60}
        ),
        "binary_matrix": Dataset("algorithmic.binary_matrix", is_matrix),
        "bitwise_arithmetic": Dataset("arithmetic.bitwise_arithmetic", is_hexadecimal),
        "caesar_cipher": Dataset("algorithmic.caesar_cipher", has_words_in_any_case, graded=True),
        "calendar_arithmetic": Dataset("arithmetic.calendar_arithmetic", is_calendar_answer),
        "chain_sum": Dataset("arithmetic.chain_sum", is_integer),
        "coin_flip": Dataset("probability.coin_flip", is_probability_of_heads),
        "color_cube_rotation": Dataset("cognition.color_cube_rotation", is_text_in_any_case),
        "complex_arithmetic": Dataset("algebra.complex_arithmetic", share_of_complex, graded=True),
        "count_bits": Dataset("arithmetic.count_bits", is_integer, {"max_n": 2**62}),
        "count_primes": Dataset("algorithmic.count_primes", is_integer),
        "countdown": Dataset("games.countdown", is_countdown),
        "cryptarithm": Dataset("algorithmic.cryptarithm", is_cryptarithm),
        "decimal_arithmetic": Dataset("arithmetic.decimal_arithmetic", is_decimal),
        "decimal_chain_sum": Dataset("arithmetic.decimal_chain_sum", is_decimal),
        "dice": Dataset("arithmetic.dice", is_simplified_fraction),
        "emoji_mystery": Dataset("games.emoji_mystery", is_text),
        "family_relationships": Dataset("graphs.family_relationships", is_relation, {"min_family_size": 6}),
        "fraction_simplification": Dataset("arithmetic.fraction_simplification", is_simplified_fraction),
        "futoshiki": Dataset("games.futoshiki", share_of_cells, {"max_board_size": 5}, graded=True),
        "game_of_life": Dataset(
            "algorithmic.game_of_life", is_matrix, {"grid_size_x": 8, "grid_size_y": 8, "filled_cells": 20}
        ),
        "graph_color": Dataset("algorithmic.graph_color", is_coloring, {"edge_probability": 0.25}),
        "group_anagrams": Dataset("algorithmic.group_anagrams", share_of_groups, graded=True),
        "gsm_symbolic": Dataset("arithmetic.gsm_symbolic.gsm_symbolic", is_decimal, per_seed=True),
        "jugs": Dataset("algorithmic.jugs", is_jugs_plan),
        "kakurasu": Dataset("games.kakurasu", is_kakurasu),
        "knights_knaves": Dataset("logic.knights_knaves", is_knights_and_knaves, {"n_people": 3}),
        "largest_island": Dataset("graphs.largest_island", is_integer, {"min_num_islands": 2, "min_island_size": 3}),
        "lcm": Dataset("arithmetic.lcm", is_integer),
        "leg_counting": Dataset("arithmetic.leg_counting", is_integer),
        "letter_counting": Dataset("algorithmic.letter_counting", is_integer, {"min_words": 40, "max_words": 80}),
        "letter_jumble": Dataset("algorithmic.letter_jumble", has_words, graded=True),
        "list_functions": Dataset("induction.list_functions.list_functions", is_matrix, per_seed=True),
        "manipulate_matrix": Dataset("algorithmic.manipulate_matrix", has_rows, graded=True),
        "maze": Dataset(
            "games.maze", is_integer, {"min_dist": 10, "max_dist": 40, "min_grid_size": 12, "max_grid_size": 20}
        ),
        "mini_sudoku": Dataset("games.mini_sudoku", share_of_cells, graded=True),
        "modulo_grid": Dataset("cognition.modulo_grid", is_grid_of_signs, {"max_holes": 80}),
        "n_queens": Dataset("games.n_queens", is_n_queens),
        "needle_haystack": Dataset("cognition.needle_haystack", is_text_in_any_case),
        "number_filtering": Dataset("algorithmic.number_filtering", is_list_of_numbers),
        "number_format": Dataset("arithmetic.number_format", is_nearest_thousandth),
        "number_sequence": Dataset("cognition.number_sequences", is_integer, {"max_complexity": 2, "max_terms": 5}),
        "number_sorting": Dataset("algorithmic.number_sorting", has_first_numbers, graded=True),
        "palindrome_generation": Dataset("algorithmic.palindrome_generation", is_palindrome),
        "path_star": Dataset("graphs.path_star", is_list_of_numbers),
        "polynomial_multiplication": Dataset("algebra.polynomial_multiplication", is_product),
        "pool_matrix": Dataset("algorithmic.pool_matrix", is_grid_of_decimals, {"min_pool_size": 2}),
        "prime_factorization": Dataset("arithmetic.prime_factorization", has_prime_factors),
        "products": Dataset("arithmetic.products", is_integer),
        "propositional_logic": Dataset(
            "logic.propositional_logic",
            follows_from_premises,
            {"min_vars": 5, "max_vars": 6},
            mend=_with_correct_answer,
        ),
        "quantum_lock": Dataset("graphs.quantum_lock", opens_lock, {"difficulty": 7}),
        "rearc": Dataset("arc.rearc", is_matrix),
        "rectangle_count": Dataset("cognition.rectangle_count", is_integer),
        "rotate_matrix": Dataset("algorithmic.rotate_matrix", is_matrix, {"min_rotations": 1, "max_rotations": 3}),
        "rotten_oranges": Dataset("algorithmic.rotten_oranges", is_integer, {"p_oranges": 0.97, "p_rotten": 0.01}),
        "shortest_path": Dataset(
            "graphs.shortest_path", is_shortest_path, {"p_blocked": 0.25, "min_rows": 6, "min_cols": 6}
        ),
        "simple_equations": Dataset("algebra.simple_equations", is_value_of_variable),
        "simple_geometry": Dataset("geometry.simple_geometry", is_angle),
        "simple_integration": Dataset("algebra.simple_integration", is_antiderivative),
        "sokoban": Dataset(
            "games.sokoban", share_of_boxes, {"max_w": 7, "max_h": 7, "min_boxes": 3, "max_boxes": 3}, graded=True
        ),
        "spell_backward": Dataset("algorithmic.spell_backward", letters_in_place, graded=True),
        "spiral_matrix": Dataset("algorithmic.spiral_matrix", is_list_of_numbers),
        "string_manipulation": Dataset(
            "algorithmic.string_manipulation", is_text, {"min_string_length": 15, "max_string_length": 30}
        ),
        "string_splitting": Dataset("algorithmic.string_splitting", is_list_of_numbers),
        "string_synthesis": Dataset("algorithmic.string_synthesis", is_list_of_numbers),
        "sudoku": Dataset("games.sudoku", share_of_cells, graded=True),
        "survo": Dataset("games.survo", is_survo),
        "time_intervals": Dataset(
            "arithmetic.time_intervals",
            is_duration,
            {"task_types": ["time", "time_seconds", "date", "datetime", "datetime_tz"]},
        ),
        "tower_of_hanoi": Dataset("games.tower_of_hanoi", is_hanoi_plan, {"max_disks": 5, "max_pegs": 5}),
        "word_sequence_reversal": Dataset("algorithmic.word_sequence_reversal", is_list_of_words),
        "word_sorting": Dataset("algorithmic.word_sorting", has_first_words, graded=True),
    }
)
"""The datasets of reasoning-gym that a manifest may name. Their items are identical on every machine."""

_INTEROP: Mapping[str, Scorer] = MappingProxyType(
    {"interop_largest": is_integer, "interop_reverse": is_text, "interop_sum": is_integer}
)


def scorer_of(dataset: str) -> Scorer:
    """Return the scorer of a dataset of reasoning-gym or of the wire spec. Raises KeyError for another one."""
    return _INTEROP[dataset] if dataset in _INTEROP else DATASETS[dataset].scorer
