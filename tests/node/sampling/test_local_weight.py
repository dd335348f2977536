"""What an external group counts is measured by local groups: no peer chooses the measure for the groups of others."""

import random
from collections import Counter

import pytest

from sapo_node.groups.advantage import external_advantages, local_advantages
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.external import ExternalSampler
from sapo_node.sampling.filters import Offered
from sapo_node.sampling.weights import LocalWeight, PassRates, loss_weight, own_advantages
from sapo_node.trust.constants import LOCAL_RANGE, LOSS_WEIGHT_LIMIT, Fact, Tier
from sapo_node.trust.ledger import Ledger

LENGTH = 80


def own(*, right=3, length=LENGTH):
    levels = Levels(tuple(int(number < right) for number in range(8)))
    completions = tuple(Sampled("x" * length, "stop", (1,)) for _ in levels.correct)
    return LocalGroup("products", "?", bytes(32), completions, levels, local_advantages(levels))


def others(peer, counter, *, right=4, length=LENGTH):
    levels = Levels(tuple(int(number < right) for number in range(8)))
    completions = tuple(Sampled("y" * length, "stop") for _ in levels.correct)
    return VerifiedGroup(peer, 12, counter, 0, "products", "?", completions, levels)


def light(peer, counter):
    """A group of one short correct completion and seven empty ones."""
    levels = Levels((1,) + (0,) * 7)
    completions = tuple(Sampled("<answer>7</answer>" * reward, "stop") for reward in levels.correct)
    return VerifiedGroup(peer, 12, counter, 0, "products", "?", completions, levels)


def heavy(peer, counter, *, right, wrong=0):
    """A group with so many correct completions, and with incorrect ones of another length."""
    levels = Levels(tuple(int(number < right) for number in range(8)))
    completions = tuple(Sampled("y" * (LENGTH if reward else wrong), "stop") for reward in levels.correct)
    return VerifiedGroup(peer, 12, counter, 0, "products", "?", completions, levels)


def taught(drawn):
    """What a drawn group adds to the loss."""
    parts = zip(drawn.advantages, drawn.group.lengths, strict=True)
    return drawn.weight * sum(advantage * length for advantage, length in parts if advantage > 0)


@pytest.fixture
def ledger(database):
    """A ledger in which one peer is proven."""
    ledger = Ledger(database)
    for epoch in (10, 11):
        ledger.at(epoch)
        for _ in range(8):
            ledger.report("proven", Fact.VERIFIED_GROUP)
    ledger.at(12)
    assert ledger.tier("proven") is Tier.PROVEN
    return ledger


@pytest.fixture
def start(database, ledger):
    """Start what draws the external groups, each time on the same state."""

    def start(filters=("baseline",)):
        rng = random.Random(1)
        return ExternalSampler(database, ledger, rng, local=4, external=16, filters=filters, selection="trust")

    return start


async def play(external, *local):
    """Rounds with these local groups, until strangers may fill every place."""
    for _ in range(4):
        choice = await external.choose([others("early", 0)], epoch=12)
        await external.observe(local, choice, [(each.group, each.group.correct) for each in choice.drawn])


async def weights(external, offered):
    """The weights of all groups that were drawn of each peer, summed."""
    found = Counter()
    for each in (await external.choose(offered, epoch=12)).drawn:
        found[each.group.peer] += each.weight
    return found


@pytest.mark.parametrize("filters", [(), ("baseline",)])
@pytest.mark.parametrize(("right", "least"), [(1, 5), (3, 15), (7, 8)])
async def test_light_groups_of_one_proven_peer_leave_strangers_their_weight(start, filters, right, least):
    """Groups in which four of eight are correct, with so many correct of eight in local ones."""
    external = start(filters)
    await play(external, *[own(right=right)] * 4)
    counted = await weights(external, [light("proven", 0), *(others("stranger", number) for number in range(30))])
    assert counted["stranger"] >= least


async def test_long_groups_of_one_proven_peer_do_not_let_strangers_outweigh_a_round(start):
    external = start(())
    await play(external, *[own()] * 4)
    long = 100 * LENGTH
    offered = [others("proven", 0, length=long), *(others("long", number, length=long) for number in range(16))]
    one = loss_weight(external_advantages(offered[0].levels), offered[0].lengths)
    local = loss_weight(external_advantages(own().levels), (LENGTH,) * 8)
    drawn = (await weights(external, offered))["long"] * one / local
    assert drawn <= LOSS_WEIGHT_LIMIT * LOCAL_RANGE * 16


@pytest.mark.parametrize("right", [1, 4, 7])
async def test_no_group_teaches_more_than_its_limit_however_short_its_incorrect_completions_are(start, right):
    """The loss counts the correct completions of others alone."""
    external = start()
    await play(external, *[own(right=1)] * 4)
    offered = [*(others("proven", number, right=1) for number in range(8)), heavy("stranger", 0, right=right)]
    drawn = (await external.choose(offered, epoch=12)).drawn
    [usual, *_] = [taught(each) for each in drawn if each.group.peer == "proven"]
    [most] = [taught(each) for each in drawn if each.group.peer == "stranger"]
    assert most <= 1.01 * LOSS_WEIGHT_LIMIT * usual


async def test_where_the_loss_counts_incorrect_completions_they_weigh_as_well(database, ledger):
    rng = random.Random(1)
    external = ExternalSampler(
        database, ledger, rng, local=4, external=16, filters=(), selection="trust", objective="on-policy"
    )
    await play(external, *[own(right=4)] * 4)
    usual = [others("stranger", number) for number in range(8)]
    offered = [*usual, heavy("stranger", 8, right=4, wrong=7 * LENGTH)]
    counted = {each.group.counter: each.weight for each in (await external.choose(offered, epoch=12)).drawn}
    assert counted == {**dict.fromkeys(range(8), 1.0), 8: pytest.approx(0.5, abs=0.01)}


async def test_groups_of_able_peers_count_in_full_though_they_are_twice_as_long(start):
    external = start()
    await play(external, *[own(right=1)] * 4)
    assert await weights(external, [others("able", number, length=2 * LENGTH) for number in range(16)]) == {"able": 16}


async def test_what_local_groups_weigh_is_known_after_a_restart(start):
    before = start()
    await play(before, own())
    before.save(4)
    counted = await weights(start(), [light("proven", 0), *(others("stranger", number) for number in range(30))])
    assert counted["stranger"] >= 14


async def test_before_the_first_informative_local_group_the_groups_on_offer_are_the_measure(start):
    external = start()
    await play(external, own(right=0, length=0))
    assert await weights(external, [others("able", number) for number in range(16)]) == {"able": 16}


def test_a_local_group_weighs_what_it_would_if_a_peer_had_sent_it():
    rates = PassRates()
    rates.observe([own(right=1)])
    for by_pass_rate, worth in ((False, None), (True, own_advantages(Levels((1, 0)), 1 / 8)[0])):
        known = LocalWeight(rates, by_pass_rate=by_pass_rate)
        known.observe([own(right=0), own(right=1), own(right=8)])
        counted = Offered(others("peer", 0, right=1), worth).advantages(external_advantages(own(right=1).levels))
        assert known.value == pytest.approx(loss_weight(counted, (LENGTH,) * 8))


def test_one_tier_of_peers_with_few_correct_completions_does_not_say_what_all_groups_are_worth(start):
    sampler = start()._sampler
    strangers = [others("stranger", number) for number in range(8)]
    assert sampler.reference_set([light("proven", 0), *strangers]) == strangers
    proven = [others("proven", number) for number in range(2)]
    assert sampler.reference_set([*proven, *(light("stranger", number) for number in range(8))]) == proven
    assert sampler.reference_set([]) == []
