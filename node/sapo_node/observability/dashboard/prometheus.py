"""The node's figures as Prometheus asks for them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sapo_node.observability.history import ACCEPTED, EVIDENCE, PULLED, TAKEN, VERIFIED
from sapo_node.observability.overview import Overview

_GAUGES = {
    "reward": ("reward_ratio", "Mean reward of all own completions of the last round"),
    "entropy": ("entropy_nats", "Mean entropy over own tokens trained on in the last round"),
    "mean_length": ("completion_length_tokens", "Mean length of own completions of the last round"),
    "truncated": ("completions_truncated_ratio", "Share of own completions cut at the limit"),
    "zero_advantage": ("groups_without_advantage_ratio", "Share of the last round's groups without advantage"),
    "grad_norm": ("gradient_norm", "L2 norm of the last gradient before clipping"),
    "learning_rate": ("learning_rate", "Of the last step"),
    "external": ("external_groups", "Groups of others trained on in the last round"),
    "external_weight": ("external_weight_ratio", "Mean weight in the loss of the groups of others in the last batch"),
    "drawn": ("drawn_groups", "Groups of others in the last batch"),
    "masked_tokens": ("masked_tokens", "Tokens of others' correct completions that filters masked in the last round"),
    "refused": ("refused_groups", "Groups of the last batch that the learner refused"),
}
"""By figure of `metrics.METRICS`: name, without its prefix, and meaning."""


class _OfNode:
    """Collects from one view of a node."""

    def __init__(self, view: Overview) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._of_round()
        yield from self._of_swarm()

    def _of_round(self) -> Iterator[Metric]:
        if not self._view.rounds:
            return
        last = self._view.rounds[-1]
        yield CounterMetricFamily("sapo_rounds", "Rounds played; the step of the policy", value=last["step"])
        for figure, (name, about) in _GAUGES.items():
            if last.get(figure) is not None:
                yield GaugeMetricFamily(f"sapo_{name}", about, value=last[figure])
        if self._view.evaluations:
            evaluation = self._view.evaluations[-1]
            yield GaugeMetricFamily(
                "sapo_heldout_pass_ratio", "Held-out pass@1 at the last look", value=evaluation["pass_at_1"]
            )
        phases = GaugeMetricFamily("sapo_round_seconds", "Wall time of the last round, by phase", labels=["phase"])
        for phase, seconds in last["seconds"].items():
            phases.add_metric([phase], seconds)
        yield phases

    def _of_swarm(self) -> Iterator[Metric]:
        view, session = self._view, self._view.session
        yield GaugeMetricFamily("sapo_peers_connected", "Peers connected", value=len(session.get("connected", ())))
        followed = len(session.get("shards", {}).get("followed", ()))
        yield GaugeMetricFamily("sapo_shards_followed", "Shards of the swarm that are followed", value=followed)
        yield GaugeMetricFamily("sapo_rollouts_waiting", "Rollouts not yet verified", value=session.get("waiting", 0))
        standings = GaugeMetricFamily("sapo_peers", "Peers known, by standing", labels=["standing"])
        for standing, known in view.standings.items():
            standings.add_metric([standing], known)
        yield standings
        taken = {
            ACCEPTED: "envelopes_accepted",
            PULLED: "envelopes_pulled",
            VERIFIED: "groups_verified",
            EVIDENCE: "evidence_accepted",
        }
        for count, name in taken.items():
            yield CounterMetricFamily(
                f"sapo_{name}", f"Since the state was made: {count}", value=view.counts.get(count, 0)
            )
        left_out = CounterMetricFamily(
            "sapo_left_out",
            "Messages and groups not taken or not trained on since the state was made, by reason",
            labels=["reason"],
        )
        for reason, times in view.counts.items():
            if reason not in TAKEN:
                left_out.add_metric([reason], times)
        yield left_out
        tokens = CounterMetricFamily("sapo_tokens_trained", "Tokens trained on, by origin", labels=["origin"])
        tokens.add_metric(["own"], view.own_tokens)
        tokens.add_metric(["others"], view.other_tokens)
        yield tokens


def exposition(view: Overview) -> bytes:
    """The text of `/metrics`."""
    registry = CollectorRegistry()
    registry.register(_OfNode(view))
    return generate_latest(registry)
