"""The figures of an experiment, from the records of its runs. The unit is the seed of a swarm: one number for each.

Confidence intervals of means are by Student's t, over units that are independent of each other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from statistics import fmean, pstdev, stdev
from typing import Any

from scipy.special import stdtrit

from sapo_adversary.experiments.experiment import Experiment
from sapo_node.groups.stats import Interval


def mean_interval(values: Sequence[float], level: float) -> Interval:
    """The interval of the mean of independent values. Raises StatisticsError for fewer than two."""
    mean = fmean(values)
    error = stdev(values) / sqrt(len(values))
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def paired_interval(first: Sequence[float], second: Sequence[float], level: float) -> Interval:
    """The interval of the mean of `second` - `first`, measured on the same units in the same order.

    Raises StatisticsError for fewer than two pairs, ValueError where one has no partner.
    """
    return mean_interval([after - before for before, after in zip(first, second, strict=True)], level)


LEVEL = 0.90
"""The level of the intervals."""
WINDOW = 10
"""Rounds of the means in which oscillation is measured."""
SMOOTH = 5
"""Rounds of the trailing mean that has to reach half of the ceiling."""

OWN = "itself"
"""The author of a node's own groups, beside the roles of its peers."""
ATTACKERS = "attackers"
"""Writers that are none of the nodes: a simulation may have attackers that nodes trust."""

Record = Mapping[str, Any]
Nodes = Sequence[Mapping[str, Any]]


def summarise(experiment: Experiment, records: Mapping[str, Sequence[Record]]) -> dict[str, Any]:
    """The figures of every arm (of all its nodes, and by role where there are several), and how arms compare."""
    arms = {arm: _arm(experiment, runs) for arm, runs in records.items()}
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "command": experiment.command,
        "config": dict(experiment.table),
        "seeds": list(experiment.seeds),
        "reference": experiment.reference,
        "arms": arms,
        "comparisons": {
            arm: {"with": reference, **_compare(arms[reference], figures)}
            for arm, figures in arms.items()
            if (reference := experiment.compared_with(arm))
        },
    }


def _arm(experiment: Experiment, runs: Sequence[Record]) -> dict[str, Any]:
    figures = _figures(experiment, [(run["nodes"], run["timing"]["cpu_seconds"]) for run in runs])
    roles = [_roles(run) for run in runs]
    if len(set(roles[0])) > 1:
        figures["roles"] = {
            role: {
                **_figures(experiment, [_only(run, names, role) for run, names in zip(runs, roles, strict=True)]),
                "carried": _carried(runs, role),
            }
            for role in dict.fromkeys(roles[0])
        }
    return figures


def _roles(run: Record) -> list[str]:
    return [spec["role"] for spec in run["scenario"]["nodes"] for _ in range(spec["count"])]


def _only(run: Record, roles: Sequence[str], role: str) -> tuple[Nodes, Sequence[Sequence[float]]]:
    places = [place for place, name in enumerate(roles) if name == role]
    return [run["nodes"][place] for place in places], [run["timing"]["cpu_seconds"][place] for place in places]


def _carried(runs: Sequence[Record], role: str) -> dict[str, dict[str, int]]:
    """Tokens that nodes of a role trained on, over all seeds, by task and by the role of their writers."""
    carried: dict[str, dict[str, int]] = {}
    for run in runs:
        writers = {node["peer"]: name for node, name in zip(run["nodes"], _roles(run), strict=True)} | {"": OWN}
        for node in run["nodes"]:
            if writers[node["peer"]] == role:
                for task, peer, tokens in node["carried"]:
                    by_writer, writer = carried.setdefault(task, {}), writers.get(peer, ATTACKERS)
                    by_writer[writer] = by_writer.get(writer, 0) + tokens
    return {task: dict(sorted(by_writer.items())) for task, by_writer in sorted(carried.items())}


def _figures(experiment: Experiment, swarms: Sequence[tuple[Nodes, Sequence[Sequence[float]]]]) -> dict[str, Any]:
    """One list over seeds for every figure, and the curves, one list of rounds for every seed."""
    per_seed = [_swarm(experiment.ceiling / 2, nodes, cpu) for nodes, cpu in swarms]
    curves = [_swarm_curves(nodes) for nodes, _ in swarms]
    return {**_by_name(per_seed), "curves": _by_name(curves)}


def _by_name(per_seed: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [figures[name] for figures in per_seed] for name in per_seed[0]}


def _swarm(half: float, nodes: Nodes, cpu: Sequence[Sequence[float]]) -> dict[str, Any]:
    reward = _curve(nodes, "reward")
    tokens = _spent([node["rounds"]["generated_tokens"] for node in nodes])
    spent = _spent(cpu)
    reached = rounds_to(reward, half)
    last = [node["heldout"][-1] for node in nodes]
    rounds = [node["rounds"] for node in nodes]
    return {
        "cumulative": round(sum(sum(node["rounds"]["reward"]) for node in nodes), 3),
        "heldout_start": round(fmean(node["heldout"][0]["pass_at_1"] for node in nodes), 4),
        "heldout_final": round(fmean(each["pass_at_1"] for each in last), 4),
        "heldout_by_node": [round(each["pass_at_1"], 4) for each in last],
        "heldout_by_task": {
            task: round(fmean(each["per_task"][task] for each in last), 4) for task in last[0]["per_task"]
        },
        **({"heldout_averaged": round(fmean(each["averaged"] for each in last), 4)} if "averaged" in last[0] else {}),
        "informative": round(fmean(sum(each["informative"]) / sum(each["local"]) for each in rounds), 4),
        "generated_tokens": sum(node["rounds"]["generated_tokens"][-1] for node in nodes),
        "trained_tokens": sum(each["tokens"] for node in nodes for each in node["trained"].values()),
        "external_tokens": sum(
            each["tokens"] for node in nodes for peer, each in node["trained"].items() if peer != "own"
        ),
        "rounds_to_half": reached,
        "tokens_to_half": tokens[reached - 1] if reached else None,
        "cpu_seconds_to_half": round(spent[reached - 1], 1) if reached else None,
        "cpu_seconds": round(sum(each[-1] for each in cpu), 1),
        "oscillation": round(oscillation(reward), 4),
        "drawdown": round(drawdown(reward), 4),
    }


def _swarm_curves(nodes: Nodes) -> dict[str, Any]:
    """The mean over nodes, by round."""
    by_round = {name: _rounded(_curve(nodes, name)) for name in ("reward", "informative", "local", "external")}
    heldout = _heldout_curve(nodes, lambda measured: measured["pass_at_1"])
    curves: dict[str, Any] = {**by_round, "heldout": heldout}
    if "averaged" in nodes[0]["heldout"][-1]:
        curves["heldout_averaged"] = _heldout_curve(nodes, lambda measured: measured["averaged"])
    if len(heldout) > len(("start", "end")):
        tasks = nodes[0]["heldout"][0]["per_task"]
        curves["heldout_by_task"] = {task: _heldout_curve(nodes, _rate_at(task)) for task in tasks}
    return curves


def rounds_to(curve: Sequence[float], level: float) -> int | None:
    """The round, from 1, at which the trailing mean of SMOOTH rounds first reaches a level; None if it never does."""
    for end in range(SMOOTH, len(curve) + 1):
        if fmean(curve[end - SMOOTH : end]) >= level:
            return end
    return None


def oscillation(curve: Sequence[float]) -> float:
    """Standard deviation of the means of WINDOW rounds around a straight line through their neighbours."""
    means = _windows(curve)
    bends = [now - (before + after) / 2 for before, now, after in zip(means, means[1:], means[2:], strict=False)]
    return pstdev(bends) if len(bends) > 1 else 0.0


def drawdown(curve: Sequence[float]) -> float:
    """The largest fall of the WINDOW-round means below an earlier one."""
    best = worst = 0.0
    for mean in _windows(curve):
        best = max(best, mean)
        worst = max(worst, best - mean)
    return worst


def _windows(curve: Sequence[float]) -> list[float]:
    return [fmean(curve[start : start + WINDOW]) for start in range(0, len(curve) - WINDOW + 1, WINDOW)]


def _curve(nodes: Nodes, name: str) -> list[float]:
    """The mean over the nodes that played the round, by round."""
    longest = max(len(node["rounds"][name]) for node in nodes)
    return [
        fmean(node["rounds"][name][place] for node in nodes if place < len(node["rounds"][name]))
        for place in range(longest)
    ]


def _spent(counts: Sequence[Sequence[float]]) -> list[float]:
    """The sum that all nodes have spent, by round. A node that has left spends no more."""
    longest = max(len(count) for count in counts)
    return [sum(count[min(place, len(count) - 1)] for count in counts) for place in range(longest)]


def _rate_at(task: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda measured: float(measured["per_task"][task])


def _heldout_curve(nodes: Nodes, figure: Callable[[Mapping[str, Any]], float]) -> list[list[float]]:
    """[round, pass@1] for each round at which all nodes were measured, the last measurement of each."""
    measured = [{each["round"]: figure(each) for each in node["heldout"]} for node in nodes]
    common = sorted(set.intersection(*(set(each) for each in measured)))
    return [[at, round(fmean(each[at] for each in measured), 4)] for at in common]


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 4) for value in values]


def _compare(reference: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """The gain in cumulative reward, and differences by seed with their paired intervals."""
    gains = _gains(zip(reference["cumulative"], figures["cumulative"], strict=True))
    compared: dict[str, Any] = {
        "gain_by_seed": [None if gain is None else round(gain, 4) for gain in gains],
        "gain": _mean_gain(gains),
        "level": LEVEL,
        "gain_by_horizon": _gain_by_horizon(reference["curves"]["reward"], figures["curves"]["reward"]),
    }
    if len(gains) > 1:
        known = [gain for gain in gains if gain is not None]
        if len(known) == len(gains):
            gain = mean_interval(known, LEVEL)
            compared["gain_interval"] = _rounded((gain.low, gain.high))
        held = paired_interval(reference["heldout_final"], figures["heldout_final"], LEVEL)
        compared["heldout_difference"] = _rounded((held.point, held.low, held.high))
    if "roles" in figures and "roles" in reference:
        compared["roles"] = {
            role: _compare(reference["roles"][role], each)
            for role, each in figures["roles"].items()
            if role in reference["roles"]
        }
    return compared


def _gains(pairs: Iterable[tuple[float, float]]) -> list[float | None]:
    """By how much the second number of each pair is greater; None where the first is 0."""
    return [late / early - 1 if early else None for early, late in pairs]


def _mean_gain(gains: Sequence[float | None]) -> float | None:
    """The mean over seeds; None where a seed has no gain."""
    known = [gain for gain in gains if gain is not None]
    return round(fmean(known), 4) if len(known) == len(gains) else None


def _gain_by_horizon(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> list[float | None]:
    """The gain if the runs had ended after each round: the mean over seeds."""
    by_seed = [
        _gains(zip(accumulate(old), accumulate(new), strict=False)) for old, new in zip(before, after, strict=True)
    ]
    return [_mean_gain(gains) for gains in zip(*by_seed, strict=False)]
