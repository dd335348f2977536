"""The figures of a round, under the names by which `metrics`, `status` and the JSON lines of `start` give them."""

from typing import Any

from sapo_node.training.round import RoundReport

METRICS = {
    "step": "of the policy after the round",
    "at": "end of the round, in Unix seconds; rounds of older versions lack it",
    "epoch": "of the swarm",
    "counter": "of the round within its epoch",
    "published": "whether the round was shared",
    "reward": "mean over all completions generated, before any selection",
    "local": "own groups (I)",
    "informative": "own groups that have an advantage",
    "external": "groups of other peers of which at least one token was trained on",
    "drawn": "groups of other peers in the batch",
    "external_weight": "mean weight of those groups in the loss",
    "loss": "of GRPO, over the whole batch",
    "grad_norm": "L2 norm of the gradient before clipping",
    "learning_rate": "of the step, warm-up included",
    "entropy": "mean over own tokens trained on, in nats",
    "mean_length": "of own completions, in tokens",
    "truncated": "share of own completions that were cut at the limit",
    "zero_advantage": "share of all groups at hand that have no advantage",
    "local_tokens": "own tokens trained on",
    "external_tokens": "tokens of other peers trained on",
    "masked_tokens": "tokens of other peers' correct completions that filters masked",
    "refused": "groups of the batch that the learner refused, such as those longer than max_tokens",
    "skipped": "why no update was made, or null",
    "seconds": "wall time by phase: generate, share, verify, train",
}
"""What each figure means; null stands for one that could not be computed."""


def metrics(report: RoundReport) -> dict[str, Any]:
    """One round as JSON, with the keys of METRICS."""
    training = report.training
    return {
        "step": report.step,
        "at": report.at,
        "epoch": report.epoch,
        "counter": report.counter,
        "published": report.published,
        "reward": report.reward,
        "local": report.local,
        "informative": report.informative,
        "external": report.external,
        "drawn": report.drawn,
        "external_weight": training.external_weight,
        "loss": training.loss,
        "grad_norm": training.grad_norm,
        "learning_rate": training.learning_rate,
        "entropy": training.entropy,
        "mean_length": training.mean_length,
        "truncated": training.truncated,
        "zero_advantage": training.zero_advantage,
        "local_tokens": training.local_tokens,
        "external_tokens": training.external_tokens,
        "masked_tokens": sum(training.group_masked),
        "refused": len(training.refused),
        "skipped": training.skipped,
        "seconds": dict(report.seconds),
    }
