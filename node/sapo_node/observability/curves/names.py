"""The names of the curves. Where TRL's GRPOTrainer has a curve, the name is TRL's; all others begin with `swarm/`.

`scripts/reference.py` prints this table in the reference of the site.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve of rounds."""

    meaning: str
    read: Callable[[Mapping[str, Any]], Any]
    """Its value, from the metrics of a round as the database holds them. None means that there is no value."""


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


CURVES: Mapping[str, Curve] = {
    "reward": Curve("mean reward of all local completions", lambda r: r["reward"]),
    "frac_reward_zero_std": Curve(
        "share of the local groups without an advantage", lambda r: _share(r["local"] - r["informative"], r["local"])
    ),
    "completions/mean_length": Curve("mean length of local completions, in tokens", lambda r: r.get("mean_length")),
    "completions/clipped_ratio": Curve(
        "share of local completions that were cut at the limit", lambda r: r.get("truncated")
    ),
    "entropy": Curve("mean entropy over local tokens trained on, in nats", lambda r: r.get("entropy")),
    "loss": Curve("GRPO loss of the whole batch", lambda r: r.get("loss")),
    "grad_norm": Curve("L2 norm of the gradient before clipping", lambda r: r.get("grad_norm")),
    "learning_rate": Curve("learning rate of the step", lambda r: r.get("learning_rate")),
    "step_time": Curve("wall time of the round, in seconds", lambda r: sum(r["seconds"].values())),
    "swarm/external_groups": Curve("external groups trained on", lambda r: r["external"]),
    "swarm/external_token_share": Curve(
        "share of the trained tokens that came from peers",
        lambda r: _share(r["external_tokens"], r["external_tokens"] + r["local_tokens"]),
    ),
    "swarm/external_weight": Curve(
        "mean weight in the loss of the external groups", lambda r: r.get("external_weight")
    ),
    "swarm/strangers_share": Curve(
        "part of the external groups that strangers may fill", lambda r: r.get("strangers_share")
    ),
    "swarm/masked_tokens": Curve(
        "tokens of correct external completions that filters masked", lambda r: r.get("masked_tokens")
    ),
    "swarm/refused_groups": Curve("groups of the batch that the learner refused", lambda r: r.get("refused")),
    "swarm/rate_scale": Curve("factor that alarms left on the learning rate", lambda r: r.get("rate_scale")),
    "swarm/published": Curve("1 if the round was shared, else 0", lambda r: r.get("published")),
}
"""Curves with one point per round."""
REWARD_STD = "reward_std"
"""Standard deviation of the rewards of all local completions, with Bessel's correction as in TRL."""
EVALUATION: Mapping[str, str] = {
    "eval_reward": "held-out pass@1, the mean of tasks",
    "swarm/eval_low": "lower bound of its 95 % interval",
    "swarm/eval_high": "upper bound of its 95 % interval",
    "swarm/eval/TASK": "held-out pass@1 of a task",
}
"""Curves with one point per evaluation."""
COLUMNS = ("step", "prompt", "completion", "reward", "advantage")
"""Of the table `completions`."""


def of_round(metrics: Mapping[str, Any], rewards: Sequence[float]) -> dict[str, float]:
    """Return the values of a round. `rewards`, of all local completions, is empty if they are not known any more."""
    values = {name: curve.read(metrics) for name, curve in CURVES.items()}
    values[REWARD_STD] = stdev(rewards) if len(rewards) > 1 else None
    return {name: float(value) for name, value in values.items() if value is not None}


def of_evaluation(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of an evaluation on held-out prompts."""
    tasks = {f"swarm/eval/{task}": figures["pass_at_1"] for task, figures in result["per_task"].items()}
    return {
        "eval_reward": result["pass_at_1"],
        "swarm/eval_low": result["low"],
        "swarm/eval_high": result["high"],
        **tasks,
    }
