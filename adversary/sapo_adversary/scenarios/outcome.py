"""From the records of runs to verdicts: every metric of every arm, by seed, held against what was asked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean
from typing import Any

from sapo_adversary.scenarios.metrics import REFUSED, metrics
from sapo_adversary.scenarios.scenario import Arm, Scenario
from sapo_adversary.simulator.simulation import Simulation
from sapo_adversary.simulator.versions import versions_of

Record = Mapping[str, Any]
NOT_MEASURED = "not measured"
"""In place of the mean of a metric that no run tells."""
Row = tuple[str, int, float, str, str, float, str, int, bool, str]
ATTACKED: tuple[Arm, ...] = ("undefended", "defended")
COLUMNS = ("attack", "seed", "share", "arm", "metric", "value", "verdict", "attackers", "strangers", "without")
"""Of the rows in which everything can be said. The last three tell apart runs of one attack with several numbers of
keys, among friends and strangers, and without several defences."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One metric of one arm, held against its bound."""

    arm: Arm
    metric: str
    value: float
    """Mean over seeds."""
    bound: str
    met: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario at one share of attackers."""

    scenario: Scenario
    share: float
    seeds: Sequence[int]
    values: Mapping[Arm, Sequence[Mapping[str, float]]]
    """The metrics by seed, for each attacked arm."""
    curves: Mapping[Arm, Mapping[str, Sequence[float]]]
    """The mean over honest nodes and seeds by round, for each arm."""
    versions: Mapping[str, str]
    """The code and the packages that its runs were played with."""

    @property
    def attackers(self) -> int:
        """Keys or hosts that attack."""
        return sum(band.count for band in self._simulation.attackers)

    @property
    def peers(self) -> int:
        """All of the swarm, attackers too."""
        return len(self._simulation.members) + self._simulation.crowd + self.attackers

    @property
    def _simulation(self) -> Simulation:
        return self.scenario.simulation("defended", share=self.share)

    def by_seed(self, arm: Arm, metric: str) -> list[float]:
        """The values of a metric, of the seeds whose run tells it."""
        return _by_seed(self.values[arm], metric)

    def mean(self, arm: Arm, metric: str) -> float:
        """Over the seeds whose run tells a metric; 0 if none does."""
        told = self.by_seed(arm, metric)
        return round(fmean(told), 4) if told else 0.0

    def verdicts(self) -> Iterator[Verdict]:
        """All bounds of this scenario at this share. A bound is missed if a run does not tell its
        metric.
        """
        for arm, runs in self.values.items():
            for metric, bound in self.scenario.bounds(arm, self.share).items():
                value = self.mean(arm, metric)
                if len(self.by_seed(arm, metric)) == len(runs):
                    yield Verdict(arm, metric, value, str(bound), bound.met_by(value))
                else:
                    yield Verdict(arm, metric, value, f"{bound}, but not measured with every seed", met=False)

    @property
    def held(self) -> bool:
        """True if the defended arm meets all bounds."""
        return all(verdict.met for verdict in self.verdicts() if verdict.arm == "defended")

    @property
    def harmful(self) -> bool | None:
        """True if the undefended arm is harmed as asked: an attack without harm proves nothing. None if nothing
        is asked of it.
        """
        asked = [verdict.met for verdict in self.verdicts() if verdict.arm == "undefended"]
        return all(asked) if asked else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scenario": self.scenario.name,
            "label": self.scenario.label,
            "keys": self.scenario.keys,
            "strangers": self.scenario.strangers,
            "title": self.scenario.title,
            "attack": self.scenario.attack,
            "layer": self.scenario.layer,
            "threat": self.scenario.threat,
            "without": list(self.scenario.undefended),
            "left_out": list(self.scenario.left_out),
            "share": self.share,
            "attackers": self.attackers,
            "peers": self.peers,
            "scale": self.scenario.scale,
            "seeds": list(self.seeds),
            "versions": self.versions,
            "harmful": self.harmful,
            "held": self.held,
            "verdicts": [
                {"arm": each.arm, "metric": each.metric, "value": each.value, "bound": each.bound, "met": each.met}
                for each in self.verdicts()
            ],
            "metrics": {
                arm: {name: self.by_seed(arm, name) for name in _names(values)} for arm, values in self.values.items()
            },
            "curves": self.curves,
        }


def outcome_of(
    scenario: Scenario, share: float, seeds: Sequence[int], records: Mapping[Arm, Sequence[Record]]
) -> Outcome:
    """Judge the runs of one scenario; `records` holds one of each arm for each seed."""
    friends: Sequence[Record | None] = records.get("friends") or [None] * len(seeds)
    others = list(zip(records["control"], records["alone"], friends, strict=True))
    values: dict[Arm, list[dict[str, float]]] = {
        arm: [metrics(record, *compared) for record, compared in zip(records[arm], others, strict=True)]
        for arm in ATTACKED
        if arm in records
    }
    versions = versions_of(record for runs in records.values() for record in runs)
    return Outcome(scenario, share, seeds, values, {arm: _curves(records[arm]) for arm in scenario.arms}, versions)


def rows(outcome: Outcome) -> Iterator[Row]:
    """One row for each metric of each run; the verdict is empty if nothing is asked. What is asked and was not
    measured has the value NaN, which misses every bound.
    """
    scenario, attackers = outcome.scenario, outcome.attackers
    for arm, by_seed in outcome.values.items():
        without = " and ".join(scenario.undefended) if arm == "undefended" else ""
        swarm = (attackers, scenario.strangers, without)
        bounds = scenario.bounds(arm, outcome.share)
        for seed, values in zip(outcome.seeds, by_seed, strict=True):
            for metric in sorted({*values, *bounds}):
                [value] = _by_seed([values], metric) or [nan]
                verdict = ("met" if bounds[metric].met_by(value) else "missed") if metric in bounds else ""
                yield scenario.name, seed, outcome.share, arm, metric, value, verdict, *swarm


def _by_seed(values: Sequence[Mapping[str, float]], metric: str) -> list[float]:
    """The values of a metric, without the seeds whose run does not tell it. A refusal that a run does not name did not
    happen there, so its count is 0.
    """
    if metric.startswith(REFUSED):
        return [each.get(metric, 0.0) for each in values]
    return [each[metric] for each in values if metric in each]


def _names(values: Sequence[Mapping[str, float]]) -> list[str]:
    return sorted({name for each in values for name in each})


def _curves(records: Sequence[Record]) -> dict[str, list[float]]:
    nodes = [node for record in records for node in record["nodes"]]
    curves = {"reward": [node["rounds"]["reward"] for node in nodes], "poison": [_poison(node) for node in nodes]}
    for role in sorted({role for node in nodes for role in node["states"]["trust"]}):
        curves[f"trust in {role}"] = [node["states"]["trust"][role] for node in nodes]
    for role in sorted({role for node in nodes for role in node["states"].get("healthy", ())}):
        curves[f"healthy of {role}"] = [node["states"]["healthy"][role] for node in nodes]
    for habit in nodes[0]["findings"].get("habits", ()):
        curves[f"shows {habit}"] = [node["findings"]["habits"][habit] for node in nodes]
    return {name: _mean(each) for name, each in curves.items()}


def _poison(node: Mapping[str, Any]) -> Sequence[float]:
    poison: Sequence[float] = node["findings"]["poison"]
    return poison


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    return [round(fmean(values), 4) for values in zip(*curves, strict=False)]
