"""The pool holds what was verified; the sampler's bounds hold whoever offers whatever."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapo_node.database import Database
from sapo_node.pool import MAX_PER_PEER, Pool
from sapo_node.sampler import Sampler, mass
from sapo_node.state import SCHEMA
from sapo_node.trust import policy
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.policy import Fact, Standing
from sapo_node.verify import VerifiedGroup
from sapo_protocol import Completion, Finish, peer_id

PEERS = [peer_id(bytes([n]) * 32) for n in range(1, 30)]


def group(peer=PEERS[0], counter=0, *, epoch=10, length=50, right=4):
    completions = tuple(Completion("x" * length, Finish.STOP) for _ in range(8))
    rewards = tuple(number < right for number in range(8))
    return VerifiedGroup(peer, epoch, counter, 0, "products", "What is 2 * 3?", completions, rewards)


def ledger_of(*trusted):
    return Ledger(Database(None, SCHEMA), trusted=trusted, rng=random.Random(0))


@pytest.fixture
def pool(database):
    return Pool(database)


def test_groups_come_back_as_they_went_in(pool):
    pool.add([group()])
    assert pool.groups() == [group()]


def test_the_pool_outlives_a_restart(pool, database):
    pool.add([group()])
    assert Pool(database).groups() == [group()]


def test_a_group_is_handed_out_once(pool):
    pool.add([group(), group(counter=1)])
    pool.remove([group()])
    assert pool.groups() == [group(counter=1)]


def test_a_peer_that_offers_more_pushes_out_its_own_oldest(pool):
    pool.add([group(PEERS[1]), *(group(counter=counter) for counter in range(MAX_PER_PEER + 5))])
    assert pool.per_peer() == {PEERS[0]: MAX_PER_PEER, PEERS[1]: 1}
    assert min(each.counter for each in pool.groups() if each.peer == PEERS[0]) == 5


def test_groups_past_their_age_are_dropped(pool):
    pool.add([group(epoch=10), group(epoch=14, counter=1)])
    pool.advance(10 + policy.MAX_AGE + 1)
    assert [each.epoch for each in pool.groups()] == [14]


def test_j_groups_of_trusted_peers_are_drawn():
    offered = [group(peer, counter) for peer in PEERS[:4] for counter in range(5)]
    drawn = Sampler(ledger_of(*PEERS[:4]), random.Random(0)).draw(offered, 4, epoch=10)
    assert len({(each.group.peer, each.group.counter) for each in drawn}) == 4


def test_one_peer_fills_at_most_its_share():
    drawn = Sampler(ledger_of(*PEERS), random.Random(0)).draw([group(counter=c) for c in range(50)], 4, epoch=10)
    assert len(drawn) == 4 * policy.PEER_SHARE


def test_even_where_j_is_one_a_peer_may_give_one_group():
    assert len(Sampler(ledger_of(*PEERS), random.Random(0)).draw([group()], 1, epoch=10)) == 1


def test_unfilled_slots_stay_empty():
    assert Sampler(ledger_of(*PEERS), random.Random(0)).draw([], 4, epoch=10) == []


def test_a_banned_peers_groups_are_never_drawn():
    ledger = ledger_of()
    for _ in range(4):
        ledger.report(PEERS[0], Fact.FALSE_CLAIM)
    assert ledger.of(PEERS[0]).standing is Standing.BANNED
    sampler = Sampler(ledger, random.Random(0))
    assert not any(sampler.draw([group()], 4, epoch=10) for _ in range(50))


@pytest.mark.parametrize("crowd", [1, 2, 7, 29])
def test_all_newcomers_together_get_a_tenth_however_many_they_are(crowd):
    sampler = Sampler(ledger_of(), random.Random(0))
    rounds, wanted = 100, 4
    drawn = sum(
        len(sampler.draw([group(peer, round_) for peer in PEERS[:crowd]], wanted, epoch=10)) for round_ in range(rounds)
    )
    assert 0.8 * policy.NEWCOMER_SHARE <= drawn / (rounds * wanted) <= 1.1 * policy.NEWCOMER_SHARE


def test_a_newcomer_is_drawn_within_three_rounds_of_a_fresh_swarm():
    sampler = Sampler(ledger_of(), random.Random(0))
    assert any(sampler.draw([group(counter=round_)], 4, epoch=10) for round_ in range(3))


def test_a_group_counts_less_with_every_epoch_of_age():
    sampler = Sampler(ledger_of(*PEERS), random.Random(0))
    (drawn,) = sampler.draw([group(epoch=10)], 1, epoch=12)
    assert drawn.weight == pytest.approx(policy.AGE_WEIGHT**2)


def test_older_than_the_limit_is_not_drawn():
    sampler = Sampler(ledger_of(*PEERS), random.Random(0))
    assert sampler.draw([group(epoch=10)], 4, epoch=10 + policy.MAX_AGE + 1) == []


def test_a_group_of_very_long_completions_weighs_no_more_than_the_limit_allows():
    ledger = ledger_of(*PEERS)
    offered = [group(peer) for peer in PEERS[1:6]] + [group(PEERS[0], length=299)]
    drawn = Sampler(ledger, random.Random(0)).draw(offered, 20, epoch=10)
    unit = mass(group())
    assert max(each.weight * mass(each.group) for each in drawn) <= policy.MASS_LIMIT * unit * 1.001


def test_more_trust_is_drawn_more_often():
    ledger = ledger_of(*PEERS[:2])
    for _ in range(3):
        ledger.report(PEERS[0], Fact.VERIFIED_GROUP)
    ledger.report(PEERS[1], Fact.FALSE_CLAIM)
    sampler, firsts = Sampler(ledger, random.Random(0)), Counter()
    for _ in range(300):
        firsts[sampler.draw([group(PEERS[0]), group(PEERS[1])], 1, epoch=10)[0].group.peer] += 1
    assert firsts[PEERS[0]] > 2 * firsts[PEERS[1]]


offers = st.lists(
    st.builds(
        group,
        peer=st.sampled_from(PEERS[:6]),
        counter=st.integers(0, 50),
        length=st.integers(0, 1_000),
        right=st.integers(1, 7),
    ),
    max_size=30,
    unique_by=lambda each: (each.peer, each.counter),
)


@settings(max_examples=200, deadline=None)
@given(offers, st.integers(0, 16), st.integers(0, 6), st.integers())
def test_no_offer_breaks_a_bound(offered, wanted, trusted, seed):
    drawn = Sampler(ledger_of(*PEERS[:trusted]), random.Random(seed)).draw(offered, wanted, epoch=10)
    assert len(drawn) <= wanted
    assert len({(each.group.peer, each.group.counter) for each in drawn}) == len(drawn)
    if not offered:
        return
    unit = sorted(map(mass, offered))[len(offered) // 2 : len(offered) // 2 + 1][0]
    for peer in PEERS[:6]:
        spent = sum(each.weight * mass(each.group) for each in drawn if each.group.peer == peer)
        assert spent <= max(1, policy.PEER_SHARE * wanted) * unit * 1.001


def test_the_weight_of_a_group_scales_nothing_but_the_weight():
    sampler = Sampler(ledger_of(*PEERS), random.Random(0))
    (drawn,) = sampler.draw([group()], 1, epoch=10)
    assert replace(drawn.group) == group()
    assert sum(drawn.advantages) == pytest.approx(0)
