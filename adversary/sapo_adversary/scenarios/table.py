"""The table of threats: what each attack does, what answers it, where, how to see it, and what was measured."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.scenarios.scenario import SHARE

_HEAD = (
    "| `sapo-adversary run` | threat | answered by | undefended -> defended |",
    "|---|---|---|---|",
)

_WHOLE = 100
"""From here on nobody wants decimals."""


def markdown(summary: Mapping[str, Any]) -> str:
    """The table of a summary that `matrix` wrote, at the share at which all attacks are played."""
    places = {attack: place for place, attack in enumerate(THREATS)}
    outcomes = [each for each in summary["outcomes"] if each["share"] == SHARE]
    lines = [_line(each) for each in sorted(outcomes, key=lambda each: (places[each["attack"]], each["scenario"]))]
    return "\n".join([*_HEAD, *lines]) + "\n"


def _line(outcome: Mapping[str, Any]) -> str:
    answers = ", ".join(f"[{name}]({DEFENCES[name].where})" for name in outcome["without"])
    metrics = outcome["metrics"]
    measured = "; ".join(
        f"{metric.replace('_', ' ')} {_mean(metrics['undefended'], metric)} -> {_mean(metrics['defended'], metric)}"
        for metric in _asked(outcome)
    )
    note = "" if outcome["held"] else " **(missed: " + ", ".join(_missed(outcome)) + ")**"
    return f"| `{outcome['scenario']}` | {outcome['threat']} | {answers} | {measured}{note} |"


def _asked(outcome: Mapping[str, Any]) -> list[str]:
    """What the attack is said to do, and what is lost by it."""
    harm = [each["metric"] for each in outcome["verdicts"] if each["arm"] == "undefended"]
    return list(dict.fromkeys([*harm, "reward_lost"]))


def _missed(outcome: Mapping[str, Any]) -> list[str]:
    return [each["metric"] for each in outcome["verdicts"] if each["arm"] == "defended" and not each["met"]]


def _mean(metrics: Mapping[str, Sequence[float]], name: str) -> str:
    value = fmean(metrics.get(name) or [0.0])
    if name.endswith("_lost"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.2g}"
