"""The Markdown table of the threats of a matrix."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.scenarios.metrics import REFUSED
from sapo_adversary.scenarios.outcome import NOT_MEASURED
from sapo_adversary.scenarios.scenario import SHARE

Row = Sequence[str]

_WHOLE = 100
"""Numbers from here on are shown without decimals."""


def markdown(summary: Mapping[str, Any]) -> str:
    """The threats of a matrix, in the order of the catalogue, at the share at which all attacks are played."""
    places = {attack: place for place, attack in enumerate(THREATS)}
    outcomes = [each for each in summary["outcomes"] if each["share"] == SHARE and each["attack"]]
    head = ("`sapo-adversary run`", "threat", "answered by", "undefended -> defended", "seeds")
    lines = [_threat(each) for each in sorted(outcomes, key=lambda each: (places[each["attack"]], each["scenario"]))]
    return table(head, lines, left=(0, 1, 2, 3))


def table(head: Row, rows: Iterable[Row], left: Sequence[int] = ()) -> str:
    """Markdown; columns are aligned to the right but for those in `left`."""
    rule = ["---" if place in left else "---:" for place in range(len(head))]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


def _threat(outcome: Mapping[str, Any]) -> Row:
    answers = ", ".join(f"[{name}]({DEFENCES[name].where})" for name in outcome["without"])
    metrics = outcome["metrics"]
    measured = "; ".join(
        f"{metric.replace('_', ' ')} {_mean(metrics['undefended'], metric)} -> {_mean(metrics['defended'], metric)}"
        for metric in _asked(outcome)
    )
    missed = [each["metric"] for each in outcome["verdicts"] if not each["met"]]
    what = "missed" if not outcome["held"] else "attack weaker than asked"
    note = f" **({what}: {', '.join(missed)})**" if missed else ""
    threat = THREATS[outcome["attack"]].threat()
    return (f"`{outcome['scenario']}`", threat, answers, measured + note, str(len(outcome["seeds"])))


def _asked(outcome: Mapping[str, Any]) -> list[str]:
    """The threat of the attack, and the harm that it does."""
    harm = [each["metric"] for each in outcome["verdicts"] if each["arm"] == "undefended"]
    return list(dict.fromkeys([*harm, "reward_lost"]))


def _mean(metrics: Mapping[str, Sequence[float]], name: str) -> str:
    by_seed = metrics.get(name) or ([0.0] if name.startswith(REFUSED) else [])
    if not by_seed:
        return NOT_MEASURED
    value = fmean(by_seed)
    if name.endswith("_lost"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.2g}"
