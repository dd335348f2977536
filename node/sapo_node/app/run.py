"""Plays the rounds of a node. A node with a policy trains; any other node contributes, or only verifies."""

from collections.abc import Callable
from functools import partial

from sapo_node.app.contribution_loop import OnContribution, contribute
from sapo_node.app.exchange import Publish, share
from sapo_node.app.node import Node
from sapo_node.app.recipe import recipe_of
from sapo_node.app.training_loop import OnPhase, TrainingLoop
from sapo_node.feed.policy import RemotePolicy
from sapo_node.training.rollout import Answerer, Contribution
from sapo_node.training.round import RoundReport


async def run_node(
    node: Node,
    publish: Publish,
    *,
    rounds: int | None = None,
    on_round: Callable[[RoundReport], None] = lambda _: None,
    on_phase: OnPhase = lambda _: None,
    on_contribution: OnContribution = lambda _: None,
) -> None:
    """Play `rounds` rounds, or until `node.stopping` is set. A node that trains writes a checkpoint when it stops.

    Raises RoundFailed or WorkerFailed when too many rounds fail in a row.
    """
    if node.policy is None or node.trainer is None:
        contributed = _contribution(node, node.contributor, publish) if node.contributor else None
        await contribute(node, contributed, rounds=rounds, on_contribution=on_contribution)
    else:
        contribution = _contribution(node, node.policy, publish)
        wanted = node.policy.wanted if isinstance(node.policy, RemotePolicy) else None
        loop = TrainingLoop(node, node.policy, node.trainer, contribution, on_phase=on_phase, wanted=wanted)
        await loop.run(rounds, on_round)


def _contribution(node: Node, answerer: Answerer, publish: Publish) -> Contribution:
    return Contribution(
        node.swarm,
        answerer=answerer,
        scorer=node.scorer,
        counters=node.counters,
        publish=partial(share, node, publish),
        max_tokens=recipe_of(node.config).max_tokens,
        model=node.config.model_label,
        examples=node.examples,
    )
