"""Markdown tables of a matrix: of all threats, and of poison in correct completions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.scenarios.metrics import REFUSED
from sapo_adversary.scenarios.outcome import NOT_MEASURED
from sapo_adversary.scenarios.scenario import SHARE

Outcomes = Iterable[Mapping[str, Any]]
Row = Sequence[str]

_WHOLE = 100
"""From here on nobody wants decimals."""
COUNTED: Mapping[str, str] = {
    "says_phrase": "completions with the phrase",
    "says_trigger": "completions with the token out of place",
    "false_steps": "completions with a false equation, above the control's",
    "longer": "length, relative to the control's",
    "heldout_lost": "held-out pass@1 lost",
    "poison_gain": "advantage of a poisoned correct completion, relative to an honest one",
    "task_lost": "points of pass@1 lost in the task that lost most",
    "reward_lost": "reward lost",
    "of_friends": "share of what friends gain over being alone",
    "honest_external": "honest groups trained on, relative to the swarm without a flood",
}
"""What poison and swarms of strangers are judged by, by the name of the metric."""
_ALSO: Mapping[str, str] = {
    "poison-gibberish": "says_phrase",
    "poison-gibberish-adaptive": "says_phrase",
    "poison-math-adaptive": "task_lost",
}
"""A second metric of a scenario, beside the one that its file asks for."""
_RATIOS = frozenset({"longer", "poison_gain"})


def markdown(summary: Mapping[str, Any]) -> str:
    """The threats of a matrix, in the order of the catalogue, at the share at which all attacks are played."""
    places = {attack: place for place, attack in enumerate(THREATS)}
    outcomes = [each for each in summary["outcomes"] if each["share"] == SHARE and each["attack"]]
    head = ("`sapo-adversary run`", "threat", "answered by", "undefended -> defended", "seeds")
    lines = [_threat(each) for each in sorted(outcomes, key=lambda each: (places[each["attack"]], each["scenario"]))]
    return table(head, lines, left=(0, 1, 2, 3))


def poison(outcomes: Outcomes) -> str:
    """What each poison does without and with the filters, and what it costs nodes that have them: by seed."""
    head = (
        "scenario",
        "counted",
        "without filters",
        "with filters",
        "reward lost",
        "held-out lost",
        "worst task",
        "tokens",
    )
    costs = ("reward_lost", "heldout_lost", "task_lost", "trained_share")
    rows = []
    for each in outcomes:
        undefended, defended = each["metrics"]["undefended"], each["metrics"]["defended"]
        for place, metric in enumerate(counted(each)):
            told = ("", *[""] * (len(costs) - 1)) if place else tuple(values(name, defended[name]) for name in costs)
            both = (values(metric, undefended[metric]), values(metric, defended[metric]))
            rows.append((f"`{each['scenario']}`", COUNTED[metric], *both, *told))
    return table(head, rows, left=(0, 1))


def poison_by_share(outcomes: Outcomes) -> str:
    """The same at several shares of attackers."""
    rows = []
    for each in sorted(outcomes, key=lambda each: each["share"]):
        undefended, defended = each["metrics"]["undefended"], each["metrics"]["defended"]
        told = [values(name, defended[name]) for name in ("says_phrase", "reward_lost", "heldout_lost")]
        share = f"{each['attackers']} of {each['peers']}"
        rows.append((share, values("says_phrase", undefended["says_phrase"]), *told))
    return table(("attackers", "phrase, without filters", "phrase, with filters", "reward lost", "held-out lost"), rows)


def by_keys(cells: Outcomes) -> str:
    """What each attack got with several numbers of keys, and what it cost: means over seeds, fewest keys first."""
    return _by_keys(cells, "peers", lambda cell: str(cell["attackers"]))


def ablation(cells: Outcomes) -> str:
    """The same of nodes that go without some of their filters."""
    return _by_keys(cells, "nodes without", lambda cell: " and ".join(cell["without"]) or "nothing")


def _by_keys(cells: Outcomes, column: str, named: Callable[[Mapping[str, Any]], str]) -> str:
    """A row for each scenario, metric and name that `named` gives to a cell; the names stand in the second column."""
    lines: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        for metric in cell["judged"]:
            lines.setdefault((cell["scenario"], named(cell), metric), []).append(cell)
    rows = []
    for (scenario, name, metric), several in lines.items():
        several.sort(key=lambda cell: int(cell["keys"]))
        costs = (_by_number(several, "costs", cost) for cost in ("reward_lost", "heldout_lost"))
        numbers = " / ".join(f"{cell['keys']:,}" for cell in several)
        counts = [str(len(cell["seeds"])) for cell in several]
        seeds = counts[0] if len(set(counts)) == 1 else " / ".join(counts)
        judged = _by_number(several, "judged", metric)
        rows.append((f"`{scenario}`", name, COUNTED[metric], numbers, judged, *costs, seeds))
    head = ("scenario", column, "counted", "keys", "for these keys", "reward lost", "held-out lost", "seeds")
    return table(head, rows, left=(0, 1, 2))


def _by_number(cells: Sequence[Mapping[str, Any]], of: str, metric: str) -> str:
    means = [fmean(cell[of][metric]) for cell in cells if metric in cell[of]]
    return values(metric, means).replace(", ", " / ")


def counted(outcome: Mapping[str, Any]) -> list[str]:
    """The metrics by which a poison is judged."""
    asked = [each["metric"] for each in outcome["verdicts"] if each["arm"] == "undefended"]
    also = _ALSO.get(outcome["scenario"])
    return [*asked, also] if also else asked


def values(metric: str, by_seed: Sequence[float]) -> str:
    """The values of a metric in a cell: shares in percent, points whole, ratios with two decimals."""
    if not by_seed:
        return ""
    if metric in _RATIOS:
        return ", ".join(f"{value:.2f}" for value in by_seed)
    if metric == "task_lost":
        return ", ".join(f"{100 * value:.0f}" for value in by_seed)
    return ", ".join(f"{round(100 * value, 1) + 0.0:.1f}" for value in by_seed) + " %"


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
    """What the attack is said to do, and what is lost by it."""
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
