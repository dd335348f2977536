"""The metrics of a round: one table for the JSON of `start`, Prometheus and docs/operate/metrics.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sapo_node.training.round import RoundReport


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a round."""

    help: str
    read: Callable[[RoundReport], Any]
    """Its value as JSON; None stands for one that could not be computed."""
    unit: str = ""
    gauge: str = ""
    """Its name in Prometheus, without prefix; empty where Prometheus is not given it, or not as one gauge."""

    @property
    def meaning(self) -> str:
        """What it is and in which unit, for a reader of JSON."""
        return f"{self.help}, in {self.unit}" if self.unit else self.help


METRICS: Mapping[str, Metric] = {
    "step": Metric("step of the policy after the round", lambda r: r.step),
    "at": Metric("Unix time of the end of the round, in seconds", lambda r: r.at),
    "epoch": Metric("epoch of the swarm", lambda r: r.epoch),
    "counter": Metric("number of the round within its epoch", lambda r: r.counter),
    "published": Metric("whether the round was shared", lambda r: r.published),
    "reward": Metric(
        "mean reward of all local completions, before any selection", lambda r: r.reward, gauge="reward_ratio"
    ),
    "local": Metric("local groups (I)", lambda r: r.local),
    "informative": Metric("local groups that have an advantage", lambda r: r.informative),
    "replayed": Metric(
        "local groups of earlier rounds in the batch (experience replay)",
        lambda r: r.replayed,
        gauge="replayed_groups",
    ),
    "external": Metric(
        "external groups of which at least one token was trained on", lambda r: r.external, gauge="external_groups"
    ),
    "drawn": Metric("external groups in the batch", lambda r: r.drawn, gauge="drawn_groups"),
    "strangers_share": Metric(
        "part of the external groups of the next round that strangers may fill",
        lambda r: r.strangers_share,
        gauge="strangers_share",
    ),
    "external_weight": Metric(
        "mean weight in the loss of the external groups of the batch",
        lambda r: r.training.external_weight,
        gauge="external_weight_ratio",
    ),
    "loss": Metric("GRPO loss of the whole batch", lambda r: r.training.loss),
    "grad_norm": Metric(
        "L2 norm of the gradient before clipping", lambda r: r.training.grad_norm, gauge="gradient_norm"
    ),
    "learning_rate": Metric(
        "learning rate of the step, schedule and alarms included",
        lambda r: r.training.learning_rate,
        gauge="learning_rate",
    ),
    "rate_scale": Metric(
        "factor on the learning rate of the next round; alarms about a policy that decays lower it",
        lambda r: r.rate_scale,
        gauge="learning_rate_scale",
    ),
    "entropy": Metric(
        "mean entropy over local tokens trained on", lambda r: r.training.entropy, "nats", gauge="entropy_nats"
    ),
    "mean_length": Metric(
        "mean length of local completions", lambda r: r.training.mean_length, "tokens", "completion_length_tokens"
    ),
    "truncated": Metric(
        "share of local completions that were cut at the limit",
        lambda r: r.training.truncated,
        gauge="completions_truncated_ratio",
    ),
    "zero_advantage": Metric(
        "share of the groups of the batch that have no advantage, without replayed ones",
        lambda r: r.training.zero_advantage,
        gauge="groups_without_advantage_ratio",
    ),
    "local_tokens": Metric("local tokens trained on", lambda r: r.training.local_tokens),
    "external_tokens": Metric("external tokens trained on", lambda r: r.training.external_tokens),
    "masked_tokens": Metric(
        "tokens of correct external completions that filters masked",
        lambda r: sum(group.masked for group in r.training.groups.values()),
        gauge="masked_tokens",
    ),
    "refused": Metric(
        "groups of the batch that the learner refused, such as those longer than max_tokens",
        lambda r: sum(group.refused is not None for group in r.training.groups.values()),
        gauge="refused_groups",
    ),
    "filtered": Metric(
        "correct external completions that filters rejected or masked in part, by filter", lambda r: dict(r.filtered)
    ),
    "skipped": Metric("why no update was made, or null", lambda r: r.training.skipped),
    "seconds": Metric("wall time by phase (generate, share, verify, train)", lambda r: dict(r.seconds), "seconds"),
}
"""By name in JSON, in the order in which they are printed."""


def metrics(report: RoundReport) -> dict[str, Any]:
    """One round as JSON, with the keys of METRICS."""
    return {name: metric.read(report) for name, metric in METRICS.items()}
