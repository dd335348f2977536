"""What a round takes of the pool is chosen, and learnt from, while the rest of the node runs."""

import trio

from sampled_texts import others, own
from sapo_node.groups.messages import FILTERS
from sapo_node.sampling.external import ExternalSampler
from sapo_node.trust.ledger import Ledger


async def test_other_tasks_run_between_the_groups_that_filters_read(database, rng, nursery):
    external = ExternalSampler(database, Ledger(database), rng, local=4, external=4, filters=FILTERS, selection="trust")
    groups, local = [others(rng, counter) for counter in range(20)], [own(rng) for _ in range(10)]
    turns = 0

    async def gossip():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    nursery.start_soon(gossip)
    choice = await external.choose(groups, epoch=10)
    await trio.lowlevel.checkpoint()  # a turn that is due after the last group may still be to come
    assert choice.supply == len(groups)
    assert turns >= len(groups)
    turns = 0
    await external.observe(local, choice)
    await trio.lowlevel.checkpoint()
    assert turns >= len(local)
    nursery.cancel_scope.cancel()
