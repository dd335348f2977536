"""The six matrices: the scenarios, the shares of attackers, the numbers of keys and of seeds that each of them plays.

- `full`: every scenario at a quarter of all peers, and the six worst at the other shares.
- `quick`: small runs of `full`.
- `models`: the six worst with language models.
- `poison`: the scenarios about poison that need no fetched model.
- `keys`: the poisons whose attacker knows the filters, trusted and as a stranger, and swarms of strangers, with several
  numbers of keys that share the same messages. There is no undefended arm: without filters a poison takes hold with any
  number of keys.
- `ablation`: poisons against nodes without the filters that could stop them, one by one and in groups that ask almost
  the same. The plain poisons are played too: an attacker need not hide from a filter that is missing. `equation` and
  `length` are also left out together with the filters that need log-probabilities, as a trainer that sends none does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from sapo_adversary.scenarios.outcome import Outcome
from sapo_adversary.scenarios.play import Part
from sapo_adversary.scenarios.scenario import SHARE, SHARES, Arm, Scenario, load_scenario, scenario_names, with_keys
from sapo_node.groups.messages import reason_of

KEYS = (1, 64, 1024)
"""Numbers of keys of one attacker."""
KEYS_OF: Mapping[str, Sequence[int]] = {
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
"""Harm of a scenario in this matrix, where it differs from its file."""

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
    return keys if keys and any(KEYS_OF[name]) else KEYS_OF[name]


def judged_by(name: str) -> Sequence[str]:
    """The metrics that say what the attackers of a scenario got, or what honest strangers did."""
    return _JUDGED_BY.get(name) or tuple(load_scenario(name).harm)


def cells_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """The results of the defended nodes of each scenario, with the number of keys and the kind of attackers."""
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
    """The effect of each poison on nodes with all filters, and on nodes without some of them.

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


Matrix = Literal["full", "quick", "models", "poison", "keys", "ablation"]
MATRICES: tuple[Matrix, ...] = get_args(Matrix)
PlayParts = Callable[[Sequence[Part], Sequence[int]], list[Outcome]]
"""`play_parts(parts, seeds)`: the outcome of each part."""

SEEDS: Mapping[Matrix, int] = {"full": 5, "quick": 1, "models": 3, "poison": 3, "keys": 3, "ablation": 3}
"""Independent swarms for each cell of a matrix."""
_REALTIME_SEEDS = 2
"""Most seeds of a scenario on libp2p: each run takes minutes of real time, and the machine for itself."""
_WORST = 6
"""Scenarios that are also played at the other shares."""
_AT_SEVERAL_SHARES = "poison-text"
"""The scenario about poison that is played at several shares."""
_POISON_SHARES = (0.0625, 0.125, SHARE, 0.5)
WITH_KEYS: Mapping[Matrix, Mapping[str, Any]] = {"keys": KEYS_OF, "ablation": LEFT_OUT}
"""The matrices that play several numbers of keys, each with its scenarios."""


def names_of(kind: Matrix) -> list[str]:
    """The scenarios that a matrix plays."""
    return list(WITH_KEYS.get(kind) or [each.name for each in scenarios_of(kind, scenario_names())])


def scenarios_of(kind: Matrix, names: Iterable[str], keys: Sequence[int] = ()) -> list[Scenario]:
    """Return the named scenarios that a matrix plays, at its scale; `keys` of the matrices `keys` and `ablation`
    are the numbers of keys, if other ones than usual.
    """
    if kind == "keys":
        return scenarios_with_keys(names, keys)
    if kind == "ablation":
        return scenarios_without(names, keys)
    loaded = [each for each in map(load_scenario, names) if each.undefended and not each.crowded]
    loaded = [each for each in loaded if each.learns is (kind == "poison")]
    if kind == "poison":
        return [each for each in loaded if not each.needs_fetch]
    return [replace(each, scale=kind) for each in loaded if kind == "full" or not each.realtime]


def play_matrix(
    kind: Matrix, scenarios: Sequence[Scenario], seeds: int, play_parts: PlayParts
) -> tuple[list[Outcome], dict[str, Any]]:
    """The outcomes of a matrix, and what else its summary holds: `by_keys` of the matrix `keys`, and `without` of the
    matrix `ablation`.
    """
    numbers = range(1, 1 + seeds)
    outcomes = play_parts([(each, SHARE) for each in scenarios if not each.realtime], numbers)
    if kind == "keys":
        return outcomes, {"by_keys": cells_of(outcomes)}
    if kind == "ablation":
        return outcomes, {"without": cells_without(outcomes)}
    if kind == "full":
        others = [(each, share) for each in _worst(outcomes) for share in SHARES if share != SHARE]
        outcomes += play_parts(others, numbers)
        few = range(1, 1 + min(seeds, _REALTIME_SEEDS))
        outcomes += play_parts([(each, SHARE) for each in scenarios if each.realtime], few)
    if kind == "poison":
        several = load_scenario(_AT_SEVERAL_SHARES)
        outcomes += play_parts([(several, share) for share in _POISON_SHARES if share != SHARE], numbers)
    return outcomes, {}


def at_several_shares(summary: Mapping[str, Any]) -> list[str]:
    """The scenarios that a matrix played at several shares of attackers: the worst ones."""
    return sorted({each["scenario"] for each in summary["outcomes"] if each["share"] != SHARE})


def _worst(outcomes: Sequence[Outcome]) -> list[Scenario]:
    """The scenarios that cost an undefended swarm most of its reward, or take most of what it is trained on."""
    harm = {
        each.scenario.name: max(each.mean("undefended", metric) for metric in ("reward_lost", "poison_share"))
        for each in outcomes
    }
    grown = [each.scenario for each in outcomes if each.scenario.grows]
    return sorted(grown, key=lambda each: harm[each.name], reverse=True)[:_WORST]
