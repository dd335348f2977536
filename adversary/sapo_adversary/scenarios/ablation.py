"""The matrix of filters left out: what each filter earns against an attacker who knows the filters.

It plays each poison against nodes without the filters that could stop it, one by one, and without several of them that
ask almost the same. The other filters stay. An attacker who hides from a filter need not hide where that filter is
missing, so the plain poisons are played, too. A trainer that sends no log-probabilities goes without the filters that
need them: `equation` and `length` are left out beside those as well. A filter that earns nothing in any of these runs,
nor in those of honest swarms, is not needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sapo_adversary.scenarios.keys import KEYS, cell_of
from sapo_adversary.scenarios.outcome import Outcome
from sapo_adversary.scenarios.scenario import Arm, Scenario, load_scenario, with_keys
from sapo_node.groups.messages import reason_of

_OF_PROBABILITIES = ("min-token-prob", "answer-likelihood")
"""The filters that need the probabilities of this policy."""
LEFT_OUT: Mapping[str, Sequence[tuple[str, ...]]] = {
    "poison-math": [("equation",), _OF_PROBABILITIES, (*_OF_PROBABILITIES, "equation")],
    "poison-length": [("length",), _OF_PROBABILITIES, (*_OF_PROBABILITIES, "length")],
    "poison-gibberish": [("baseline",)],
    "poison-text-adaptive": [("n-gram",)],
    "poison-gibberish-adaptive": [("n-gram",), ("baseline",)],
    "poison-math-adaptive": [("equation",), ("answer-likelihood",), ("min-token-prob",)],
    "poison-slip": [("equation",), ("min-token-prob",)],
    "poison-trigger-adaptive": [("min-token-prob",)],
    "poison-length-adaptive": [("length",)],
    "poison-drift-adaptive": [("answer-likelihood",), ("min-token-prob",), _OF_PROBABILITIES],
    "poison-beginnings": [("min-token-prob",)],
    "poison-two-answers": [("one-answer",), ("min-token-prob",), ("one-answer", "min-token-prob")],
}
"""The scenarios, each with the filters that nodes go without."""


def scenarios_without(names: Iterable[str], keys: Sequence[int]) -> list[Scenario]:
    """The named scenarios without some of the filters, with each of these numbers of keys, or with all of `KEYS`."""
    return [
        with_keys(replace(load_scenario(name), undefended=tuple(map(reason_of, left_out)), harm={}), number)
        for name in names
        for left_out in LEFT_OUT[name]
        for number in keys or KEYS
    ]


def cells_without(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """What each poison did to nodes with all filters, and to nodes that went without some.

    Several outcomes have the same nodes with all filters: the one with the most seeds counts.
    """
    cells: dict[tuple[str, int, tuple[str, ...]], dict[str, Any]] = {}
    for each in outcomes:
        both: Iterable[tuple[Arm, tuple[str, ...]]] = (("defended", ()), ("undefended", each.scenario.undefended))
        for arm, without in both:
            cell = {**cell_of(each, arm), "without": list(without)}
            known = cells.setdefault((each.scenario.name, each.attackers, without), cell)
            if len(cell["seeds"]) > len(known["seeds"]):
                known.update(cell)
    return list(cells.values())
