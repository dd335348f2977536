"""The six matrices: which scenarios each of them plays, at which shares of attackers and with how many seeds.

`full` plays every scenario at a quarter of all peers and the six worst at the other shares; `quick` plays small runs
of it; `models` plays the six worst with language models; `poison` plays the scenarios about poison that need no
fetched model; `keys` plays the strongest poisons and swarms of strangers with several numbers of attackers' keys;
`ablation` plays those poisons against nodes that go without some of their filters.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from sapo_adversary.scenarios.ablation import LEFT_OUT, cells_without, scenarios_without
from sapo_adversary.scenarios.keys import SCENARIOS, cells_of, scenarios_with_keys
from sapo_adversary.scenarios.outcome import Outcome
from sapo_adversary.scenarios.play import Part
from sapo_adversary.scenarios.scenario import SHARE, SHARES, Scenario, load_scenario, scenario_names

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
WITH_KEYS: Mapping[Matrix, Mapping[str, Any]] = {"keys": SCENARIOS, "ablation": LEFT_OUT}
"""The matrices that play several numbers of keys, each with its scenarios."""


def names_of(kind: Matrix) -> list[str]:
    """The scenarios that a matrix plays."""
    return list(WITH_KEYS.get(kind) or [each.name for each in scenarios_of(kind, scenario_names())])


def scenarios_of(kind: Matrix, names: Iterable[str], keys: Sequence[int] = ()) -> list[Scenario]:
    """Those of the named scenarios that a matrix plays, at its scale; `keys` of the matrices `keys` and `ablation`
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
