"""The node's metrics in the form of Prometheus, and the table of them in docs/operate/metrics.md."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from sapo_node.observability.condition import condition_of
from sapo_node.observability.history import ACCEPTED, EVIDENCE, PULLED, TAKEN, VERIFIED
from sapo_node.observability.overview import Overview
from sapo_node.observability.stored import METRICS
from sapo_node.observability.tasks import TaskView

Samples = Mapping[str, float]
"""Values by label; the empty text if a metric has no label."""


@dataclass(frozen=True, slots=True)
class _Exposed:
    """One metric as Prometheus sees it."""

    name: str
    """Without prefix, and without the `_total` of a counter."""
    kind: Literal["counter", "gauge"]
    help: str
    read: Callable[[Overview], Samples]
    label: str = ""

    @property
    def full_name(self) -> str:
        """Its name in the exposition."""
        return f"sapo_{self.name}{'_total' if self.kind == 'counter' else ''}"

    def family(self, view: Overview) -> Family | None:
        """Its samples; None if there is none yet."""
        samples = self.read(view)
        if not samples:
            return None
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = make(f"sapo_{self.name}", self.help, labels=[self.label] if self.label else [])
        for label, value in samples.items():
            family.add_metric([label] if self.label else [], value)
        return family


def _of_last_round(name: str, view: Overview) -> Samples:
    """One figure of the last round, by its name in JSON; no sample if it could not be computed."""
    value: Any = view.rounds[-1].get(name) if view.rounds else None
    return {} if value is None else {"": value}


def _seconds(view: Overview) -> Samples:
    return dict(view.rounds[-1]["seconds"]) if view.rounds else {}


def _filtered(view: Overview) -> Samples:
    return dict(view.rounds[-1].get("filtered", {})) if view.rounds else {}


def _heldout(view: Overview) -> Samples:
    return {"": view.evaluations[-1]["pass_at_1"]} if view.rounds and view.evaluations else {}


def _counted(name: str, view: Overview) -> Samples:
    return {"": view.counts.get(name, 0)}


def _of_tasks(read: Callable[[TaskView], float]) -> Callable[[Overview], Samples]:
    return lambda view: {each.task: read(each) for each in view.tasks}


_TAKEN = {
    ACCEPTED: "envelopes_accepted",
    PULLED: "envelopes_pulled",
    VERIFIED: "groups_verified",
    EVIDENCE: "evidence_accepted",
}

EXPOSED = (
    _Exposed("rounds", "counter", "Rounds played; the step of the policy", partial(_of_last_round, "step")),
    *(
        _Exposed(each.gauge, "gauge", f"Last round: {each.help}", partial(_of_last_round, name))
        for name, each in METRICS.items()
        if each.gauge
    ),
    _Exposed("heldout_pass_ratio", "gauge", "Held-out pass@1 of the last evaluation", _heldout),
    _Exposed("round_seconds", "gauge", "Wall time of the last round, by phase", _seconds, "phase"),
    _Exposed(
        "task_pass_rate",
        "gauge",
        "Share of the completions of about the last ten local groups of a task that is correct",
        _of_tasks(lambda each: each.pass_rate),
        "task",
    ),
    _Exposed(
        "task_informative_ratio",
        "gauge",
        "Share of about the last ten local groups of a task whose completions earned different levels",
        _of_tasks(lambda each: each.informative),
        "task",
    ),
    _Exposed(
        "task_quiet_groups",
        "gauge",
        "Local groups of a task since the last one whose completions earned different levels",
        _of_tasks(lambda each: each.quiet_groups),
        "task",
    ),
    _Exposed("filtered_completions", "gauge", f"Last round: {METRICS['filtered'].help}", _filtered, "filter"),
    _Exposed(
        "attention",
        "gauge",
        "1 if the node needs a person, as its first line says; else 0",
        lambda view: {"": condition_of(view, runs=True, now=time.time()).level == "attention"},
    ),
    _Exposed("peers_connected", "gauge", "Peers connected", lambda view: {"": len(view.session.get("connected", ()))}),
    _Exposed(
        "shards_followed",
        "gauge",
        "Shards of the swarm that are followed",
        lambda view: {"": len(view.session.get("shards", {}).get("followed", ()))},
    ),
    _Exposed(
        "rollouts_waiting", "gauge", "Rollouts not yet verified", lambda view: {"": view.session.get("waiting", 0)}
    ),
    _Exposed("peers", "gauge", "Peers known, by state", lambda view: dict(view.states), "state"),
    *(
        _Exposed(name, "counter", f"Since the state was made: {count}", partial(_counted, count))
        for count, name in _TAKEN.items()
    ),
    _Exposed(
        "left_out",
        "counter",
        "Messages and groups not taken or not trained on since the state was made, by reason",
        lambda view: {reason: times for reason, times in view.counts.items() if reason not in TAKEN},
        "reason",
    ),
    _Exposed(
        "advantage_from_others_ratio",
        "gauge",
        "Share of the positive advantage trained on that came from peers",
        lambda view: {} if view.exchange.from_others is None else {"": view.exchange.from_others},
    ),
    _Exposed(
        "fetchers", "gauge", "Peers that fetched rollouts of this node", lambda view: {"": view.exchange.fetchers}
    ),
    _Exposed(
        "tokens_trained",
        "gauge",
        "Tokens that are in the weights, by origin; steps that are taken back lower it",
        lambda view: {"own": view.own_tokens, "others": view.other_tokens},
        "origin",
    ),
)
"""All metrics, in the order in which they are printed."""


class _OfNode:
    """Collects from one view of a node."""

    def __init__(self, view: Overview) -> None:
        self._view = view

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples."""
        for each in EXPOSED:
            if family := each.family(self._view):
                yield family


def exposition(view: Overview) -> bytes:
    """The text of `/metrics`."""
    registry = CollectorRegistry()
    registry.register(_OfNode(view))
    return generate_latest(registry)


def table() -> str:
    """The table of docs/operate/metrics.md, in Markdown."""
    rows = (f"| `{each.full_name}` | {each.kind} | {each.help} |\n" for each in EXPOSED)
    return "".join(["| name | kind | meaning |\n", "|---|---|---|\n", *rows])
