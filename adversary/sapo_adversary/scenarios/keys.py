"""The matrix of keys: what an attacker gains who splits the same messages over more keys.

It plays each poison whose attacker knows the filters, trusted and as a stranger, and swarms of strangers. There is no
undefended arm: without filters a poison takes hold whatever the number of keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sapo_adversary.scenarios.outcome import Outcome
from sapo_adversary.scenarios.scenario import Arm, Scenario, load_scenario, with_keys

KEYS = (1, 64, 1024)
"""Numbers of keys of one attacker."""
SCENARIOS: Mapping[str, Sequence[int]] = {
    "poison-text-adaptive": KEYS,
    "poison-gibberish-adaptive": KEYS,
    "poison-math-adaptive": KEYS,
    "poison-trigger-adaptive": KEYS,
    "poison-drift-adaptive": KEYS,
    "poison-paraphrase": KEYS,
    "poison-alternate": (64,),
    "poison-frame": (1, 64),
    "strangers": (0,),
    "strangers-sybils": (3, 64, 512),
    "flood": (10, 64, 1024),
    "flood-links": (30, 64, 1024),
}
"""The scenarios, each with its numbers of keys; 0 stands for no attacker. The smallest number of a swarm of strangers
is that of its file: fewer keys cannot sign as many messages."""

_JUDGED_BY: Mapping[str, Sequence[str]] = {
    "poison-gibberish-adaptive": ("says_phrase",),
    "poison-math-adaptive": ("false_steps", "task_lost"),
    "poison-frame": ("reward_lost",),
    "strangers": ("of_friends",),
    "strangers-sybils": ("of_friends",),
    "flood": ("honest_external",),
    "flood-links": ("honest_external",),
}
"""Where that is not the harm that the file of a scenario asks for."""

_COSTS = ("reward_lost", "heldout_lost", "trained_share")
"""Metrics that are kept of every scenario, beside those that it is judged by."""


def scenarios_with_keys(names: Iterable[str], keys: Sequence[int]) -> list[Scenario]:
    """The named scenarios with each of these numbers of keys, or with those of the matrix where `keys` is empty.
    They are played as the file says, and among strangers.
    """
    return [
        with_keys(replace(load_scenario(name), strangers=strangers, undefended=(), harm={}), number)
        for name in names
        for strangers in ((False,) if "friends" in load_scenario(name).arms else (False, True))
        for number in _numbers(name, keys)
    ]


def _numbers(name: str, keys: Sequence[int]) -> Sequence[int]:
    return keys if keys and any(SCENARIOS[name]) else SCENARIOS[name]


def judged_by(name: str) -> Sequence[str]:
    """The metrics that say what the attackers of a scenario got, or what honest strangers did."""
    return _JUDGED_BY.get(name) or tuple(load_scenario(name).harm)


def cells_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """What the defended nodes of each scenario showed, with the number of keys and what the attackers were."""
    return [cell_of(each, "defended") for each in outcomes]


def cell_of(outcome: Outcome, arm: Arm) -> dict[str, Any]:
    """The same of one arm of one scenario."""
    return {
        "scenario": outcome.scenario.name,
        "attackers": "strangers" if "friends" in outcome.scenario.arms else "trusted",
        "keys": outcome.attackers,
        "seeds": list(outcome.seeds),
        "judged": _values(outcome, arm, judged_by(outcome.scenario.name)),
        "costs": _values(outcome, arm, _COSTS),
    }


def _values(outcome: Outcome, arm: Arm, metrics: Iterable[str]) -> dict[str, list[float]]:
    """By seed, of the seeds whose run tells the metric; a metric that no run tells is left out."""
    return {metric: told for metric in metrics if (told := outcome.by_seed(arm, metric))}
