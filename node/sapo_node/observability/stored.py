"""The JSON that the database keeps for people and scripts: rounds, evaluations and the facts of the session.

`groups.codec` checks it when a row is read. METRICS explains the figures of a round: `start --json`, Prometheus and
docs/operate/metrics.md use this table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Required, TypedDict

from sapo_node.groups.codec import Amount, Count, Entropy, Finite, LearningRate, Norm, Share, Time, Total
from sapo_node.training.round import RoundReport

Level = Literal["attention", "info"]
"""`attention` for what needs a person, `info` for the rest."""
Role = Literal["trains", "feeds", "contributes", "relays"]
"""The role of a node: it trains, serves a trainer of another program, shares completions, or verifies and relays."""


class Round(TypedDict, total=False):
    """The metrics of one round, as METRICS explains them. A figure that could not be computed is None."""

    step: Required[Count]
    at: Time
    epoch: Required[int]
    counter: Required[int]
    published: bool
    reward: Required[Share]
    pass_rate: Share
    local: Required[Count]
    informative: Required[Count]
    replayed: Count
    external: Required[Count]
    drawn: Count
    strangers_share: Share
    external_weight: Share | None
    loss: Finite | None
    grad_norm: Norm | None
    learning_rate: LearningRate | None
    rate_scale: Share
    entropy: Entropy | None
    mean_length: Amount | None
    truncated: Share | None
    zero_advantage: Share | None
    local_tokens: Total
    external_tokens: Total
    masked_tokens: Total
    refused: Count
    filtered: Mapping[str, Count]
    skipped: str | None
    seconds: Required[Mapping[str, Amount]]


class Figures(TypedDict):
    """pass@1 with its interval, and the mean reward."""

    pass_at_1: Share
    low: Share
    high: Share
    reward: Share


class EvaluationFacts(Figures):
    """An evaluation on held-out prompts: the mean over tasks, and each task."""

    step: Count
    at: Time
    level: NotRequired[Share]
    per_task: Mapping[str, Figures]
    samples: NotRequired[Count]


class Wait(TypedDict):
    """Something that the node waits for."""

    what: str
    until: Time
    """Unix time."""
    why: NotRequired[str]
    """The reason for which the node publishes nothing until then; missing if it may publish."""


class Notice(TypedDict):
    """Something that a person may want to know."""

    at: Time
    """Unix time."""
    level: Level
    text: str


class Shards(TypedDict):
    """The shards of the swarm, and those that a node follows."""

    followed: tuple[Count, ...]
    all: Count


class SessionFacts(TypedDict, total=False):
    """Facts that only the running process knows. All are missing before the first start."""

    started: Time
    stopped: Time
    """Unix time; a session without it runs, or was killed."""
    failure: str
    """The error that ended the session; missing if none did."""
    role: Role
    takes_none: bool
    """The node is to take no external groups."""
    alone_since: Time
    """Unix time since which no peer is connected; missing if one is."""
    standing: Mapping[str, str]
    """The present problems and the things awaited: a sentence by the part of the node that reports it."""
    peer_id: str
    swarm: str
    network_id: str
    genesis: int
    epoch_seconds: Count
    page: str
    """Address of the page without its token; empty without a page."""
    addresses: tuple[str, ...]
    connected: tuple[str, ...]
    waiting: Count
    """Rollouts that wait for verification."""
    waits: tuple[Wait, ...]
    shards: Shards
    notices: tuple[Notice, ...]
    """The newest ones of each level; those that need a person come first, and of one level the newest."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a round."""

    help: str
    read: Callable[[RoundReport], Any]
    """Its value as JSON; None stands for one that could not be computed."""
    unit: str = ""
    gauge: str = ""
    """Its name in Prometheus, without prefix; empty if Prometheus is not given it, or not as one gauge."""

    @property
    def meaning(self) -> str:
        """The meaning with the unit, for a reader of JSON."""
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
    "pass_rate": Metric("share of all local completions that is correct", lambda r: r.pass_rate, gauge="pass_rate"),
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
