"""The rounds of a node that does not train: it verifies, relays, and shares the completions of its contributor."""

from collections.abc import Callable

import trio

from sapo_node.app.node import Node
from sapo_node.contributors.rounds import ContributionRounds
from sapo_node.groups.record import ContributionReport
from sapo_node.training.rollout import Contribution

_INTAKE_INTERVAL = 1.0
"""Seconds between two looks at the rollouts that wait."""

OnContribution = Callable[[ContributionReport], None]


async def contribute(
    node: Node, contribution: Contribution | None, *, rounds: int | None, on_contribution: OnContribution
) -> None:
    """Verify pending rollouts until the node stops. If there is a contribution, share `rounds` rounds of it."""
    async with trio.open_nursery() as nursery:
        if contribution is not None:
            nursery.start_soon(_share_rounds, node, contribution, rounds, on_contribution)
        await _verify_pending(node)
        nursery.cancel_scope.cancel()


async def _share_rounds(
    node: Node, contribution: Contribution, rounds: int | None, on_contribution: OnContribution
) -> None:
    def on_report(report: ContributionReport) -> None:
        node.tally.contributed(report)
        on_contribution(report)

    play = ContributionRounds(
        node.swarm,
        contribution,
        counters=node.counters,
        local=node.config.local,
        reserve=node.epochs.reserve,
        on_report=on_report,
        standing=node.standing,
    )
    await play.run(rounds)
    node.stopping.set()


async def _verify_pending(node: Node) -> None:
    while not node.stopping.is_set():
        node.epochs.enter_current()
        await node.scheduler.verify_pending(node.config.most_external)
        node.tally.count()
        await node.epochs.pause(_INTAKE_INTERVAL)
