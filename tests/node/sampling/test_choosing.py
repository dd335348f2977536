"""What a round takes of the pool is chosen, and learnt from, while the rest of the node runs."""

from itertools import chain

import trio

from sampled_texts import PHRASE, others, own
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
    await external.observe(local, choice, [(group, group.correct) for group in groups])
    await trio.lowlevel.checkpoint()
    assert turns >= len(local) + len(groups)
    nursery.cancel_scope.cancel()


async def test_what_a_round_trained_on_decides_what_later_rounds_mask(database, rng):
    external = ExternalSampler(
        database, Ledger(database), rng, local=4, external=40, filters=FILTERS, selection="trust"
    )
    says = [others(rng, counter, phrase=PHRASE, peer=f"key {counter}") for counter in range(12)]
    beside = [others(rng, 100 + counter, peer=f"peer {counter}") for counter in range(160)]
    choice = await external.choose([*says, *beside], epoch=10)
    await external.observe([own(rng, phrases=1) for _ in range(8)], choice, [(group, group.correct) for group in says])
    choice = await external.choose(says, epoch=10)
    masked = [text[begin:end] for text, spans in chain.from_iterable(map(said, choice.drawn)) for begin, end in spans]
    assert masked
    assert set(masked) == {PHRASE}


async def test_strangers_earn_a_larger_share_with_groups_that_were_trained_on_alone(database, rng):
    def places():
        return ExternalSampler(database, Ledger(database), rng, local=4, external=8, filters=(), selection="trust")

    offered = [others(rng, counter, peer=f"key {counter}") for counter in range(8)]
    external = places()
    drawn = []
    for trained in ([], [], offered[:1], []):
        choice = await external.choose(offered, epoch=10)
        drawn.append(len(choice.drawn))
        await external.observe([own(rng)], choice, [(group, group.correct) for group in trained])
    assert drawn == [2, 2, 2, 4]


async def test_what_filters_leave_of_groups_is_entered_for_their_peers(database, rng):
    ledger = Ledger(database)
    external = ExternalSampler(database, ledger, rng, local=4, external=8, filters=["equation"], selection="trust")
    false = others(rng, 0, peer="false", phrase="2 + 2 = 5")
    choice = await external.choose([false, others(rng, 1, peer="half")], epoch=10)
    await external.observe([own(rng)], choice, [], judged=[("half", 0.5)])
    assert {peer: ledger.of(peer).acceptance.share for peer in ("false", "half")} == {"false": 0.0, "half": 0.5}


def said(weighted):
    """Each text of a drawn group with its masked spans."""
    return zip((each.text for each in weighted.group.completions), weighted.silent, strict=False)
