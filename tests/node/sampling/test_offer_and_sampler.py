"""The book holds what was verified; the sampler's bounds hold whoever offers whatever."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from books import book_of, offer
from sapo_node.app.state import SCHEMA
from sapo_node.groups.advantage import external_advantages
from sapo_node.groups.book import MAX_BYTES, MAX_BYTES_PER_PEER, MAX_GROUPS, MAX_PER_PEER
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import LocalGroup, NotDrawn, VerifiedGroup
from sapo_node.sampling.filters import Offered
from sapo_node.sampling.sampler import Sampler
from sapo_node.sampling.weights import PassRates, loss_weight, own_advantages
from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.ledger import Ledger
from sapo_protocol import peer_id

PEERS = [peer_id(bytes([n]) * 32) for n in range(1, 30)]


def group(peer=PEERS[0], counter=0, *, epoch=10, length=50, right=4):
    completions = tuple(Sampled("x" * length, "stop") for _ in range(8))
    levels = Levels(tuple(int(number < right) for number in range(8)))
    return VerifiedGroup(peer, epoch, counter, 0, "products", "What is 2 * 3?", completions, levels)


def ledger_of(*trusted):
    return Ledger(Database(None, SCHEMA), trusted=trusted)


def sampler_of(ledger, seed, *, pass_rates=None, selection="trust"):
    return Sampler(ledger, random.Random(seed), pass_rates or PassRates(), selection)


def draw(sampler, offered, count, *, strangers=1.0):
    return sampler.draw(offered, count, epoch=10, strangers=strangers).groups


def plain(groups):
    return [Offered(each) for each in groups]


def mass_of(each):
    return loss_weight(external_advantages(each.levels), each.lengths)


@pytest.fixture
def book(database):
    return book_of(database)


def test_groups_come_back_as_they_went_in(book):
    offer(book, [group()])
    assert book.offered() == [group()]


def test_the_pool_outlives_a_restart(book, database):
    offer(book, [group()])
    assert book_of(database).offered() == [group()]


def test_another_content_under_the_key_of_a_known_group_is_not_offered(book):
    offer(book, [group(right=4)])
    offer(book, [group(right=2)])
    assert book.offered() == [group(right=4)]
    book.leave_out(group(right=4), NotDrawn.ENOUGH)
    offer(book, [group(right=2)])
    assert book.offered() == []


def test_a_group_is_handed_out_once(book):
    offer(book, [group(), group(counter=1)])
    book.leave_out(group(), NotDrawn.ENOUGH)
    assert book.offered() == [group(counter=1)]


def test_a_peer_that_offers_more_pushes_out_its_own_oldest(book):
    offer(book, [group(PEERS[1]), *(group(counter=counter) for counter in range(MAX_PER_PEER + 5))])
    assert book.per_peer() == {PEERS[0]: MAX_PER_PEER, PEERS[1]: 1}
    assert min(each.counter for each in book.offered() if each.peer == PEERS[0]) == 5


def test_what_arrived_first_gives_way_whatever_counter_its_issuer_chose(book):
    offer(book, [group(counter=10**6, epoch=11), *(group(counter=counter) for counter in range(MAX_PER_PEER))])
    assert {each.counter for each in book.offered()} == set(range(MAX_PER_PEER))


def test_strangers_push_out_no_group_of_a_friend(database):
    tiers = {"friend": Tier.FRIEND, "proven": Tier.PROVEN}
    book = book_of(database, tier=lambda peer: tiers.get(peer, Tier.STRANGER))
    offer(book, [group("friend"), group("proven"), group("stranger")])
    offer(book, (group(f"key {number}") for number in range(MAX_GROUPS)))
    assert {"friend", "proven"} <= book.per_peer().keys()
    assert "stranger" not in book.per_peer()
    assert len(book.offered()) == MAX_GROUPS


def test_a_peer_with_large_groups_has_fewer_in_the_pool(book):
    large = MAX_BYTES_PER_PEER // 4 // 8
    offer(book, [group(PEERS[1]), *(group(counter=counter, length=large) for counter in range(6))])
    assert [each.counter for each in book.offered() if each.peer == PEERS[0]] == [3, 4, 5]
    assert book.per_peer()[PEERS[1]] == 1


def test_a_group_that_is_larger_than_what_a_peer_may_have_leaves_nothing_behind(book):
    offer(book, [group(PEERS[1]), group(length=MAX_BYTES_PER_PEER // 8)])
    assert book.per_peer() == {PEERS[1]: 1}


def test_large_groups_of_strangers_make_room_for_a_friends(database):
    book = book_of(database, tier=lambda peer: Tier.FRIEND if peer == "friend" else Tier.STRANGER)
    large = MAX_BYTES_PER_PEER // 2 // 8
    offer(book, (group(f"key {number}", length=large) for number in range(MAX_BYTES // MAX_BYTES_PER_PEER * 2)))
    before = len(book.offered())
    offer(book, [group("friend", length=large)])
    assert (len(book.offered()), book.per_peer()["friend"]) == (before, 1)
    assert len(book_of(database).offered()) == len(book.offered()) == before


def test_the_bytes_of_a_pool_are_known_after_a_restart(book, database):
    large = MAX_BYTES_PER_PEER // 2 // 8
    offer(book, [group(length=large)])
    offer(book_of(database), [group(counter=1, length=large)])
    assert [each.counter for each in book.offered()] == [1]


def test_groups_past_their_age_are_dropped(book):
    offer(book, [group(epoch=10), group(epoch=14, counter=1)])
    book.advance(10 + constants.MAX_AGE + 1)
    assert [each.epoch for each in book.offered()] == [14]


def test_j_groups_of_trusted_peers_are_drawn():
    offered = [group(peer, counter) for peer in PEERS[:4] for counter in range(5)]
    drawn = sampler_of(ledger_of(*PEERS[:4]), 0).draw(plain(offered), 4, epoch=10, strangers=1.0).groups
    assert len({(each.group.peer, each.group.counter) for each in drawn}) == 4


def test_one_peer_may_fill_a_round_where_nobody_else_offers():
    offered = plain([group(counter=counter) for counter in range(50)])
    assert len(draw(sampler_of(ledger_of(*PEERS), 0), offered, 4)) == 4


@pytest.mark.parametrize(("share", "drawn"), [(0.0, 1), (0.25, 1), (0.5, 2), (1.0, 4)])
def test_strangers_fill_their_share_of_a_round_and_never_less_than_one_group(share, drawn):
    offered = plain([group(peer) for peer in PEERS])
    assert len(draw(sampler_of(ledger_of(), 0), offered, 4, strangers=share)) == drawn


@pytest.mark.parametrize("keys", [1, 2, 7, 29])
def test_the_share_of_strangers_is_the_same_for_any_number_of_keys(keys):
    offered = plain([group(PEERS[number % keys], number) for number in range(40)])
    assert len(draw(sampler_of(ledger_of(), 0), offered, 8, strangers=0.5)) == 4


def test_friends_fill_what_strangers_may_not():
    offered = plain([*(group(peer) for peer in PEERS[1:]), *(group(counter=counter) for counter in range(9))])
    drawn = draw(sampler_of(ledger_of(PEERS[0]), 0), offered, 8, strangers=0.25)
    assert len(drawn) == 8
    assert sum(each.group.peer != PEERS[0] for each in drawn) <= 2


def test_each_drawn_group_has_one_stand_in_while_groups_are_left():
    offered = [group(peer) for peer in PEERS[:6]]
    drawn = sampler_of(ledger_of(*PEERS[:6]), 0).draw(plain(offered), 4, epoch=10, strangers=1.0)
    assert [each.stands_in for each in drawn.stand_ins] == [each.group for each in drawn.groups[:2]]
    assert {each.group for each in [*drawn.groups, *drawn.stand_ins]} == set(offered)
    assert drawn.not_drawn == []


def test_no_stranger_stands_in_for_a_friend():
    offered = [group(peer) for peer in PEERS]
    drawn = sampler_of(ledger_of(PEERS[0]), 0).draw(plain(offered), 4, epoch=10, strangers=0.25)
    for_friends = [each for each in drawn.stand_ins if each.stands_in.peer == PEERS[0]]
    assert for_friends == []
    assert len(drawn.stand_ins) == sum(each.group.peer != PEERS[0] for each in drawn.groups)


def test_no_group_stands_in_for_one_of_the_same_peer():
    offered = [group(counter=counter) for counter in range(4)]
    drawn = sampler_of(ledger_of(PEERS[0]), 0).draw(plain(offered), 2, epoch=10, strangers=1.0)
    assert (len(drawn.groups), drawn.stand_ins) == (2, [])


@pytest.mark.parametrize(("rejected", "drawn"), [(0, 1.0), (1, 0.5), (200, 1 / 21)])
def test_a_peer_of_which_filters_reject_much_takes_part_in_fewer_draws_though_nobody_else_offers(rejected, drawn):
    ledger = ledger_of(PEERS[0])
    ledger.judged([(PEERS[0], 0.0)] * rejected)
    offered = [group(counter=counter) for counter in range(8)]
    rounds = [sampler_of(ledger, seed).draw(plain(offered), 8, epoch=10, strangers=1.0) for seed in range(100)]
    assert sum(len(each.groups) for each in rounds) / 800 == pytest.approx(drawn, abs=0.05)
    assert all(why is NotDrawn.SELDOM_ACCEPTED for each in rounds for _, why in each.not_drawn)


def test_a_banned_peers_groups_stand_in_for_nobodys():
    ledger = ledger_of(PEERS[0], PEERS[2])
    while ledger.admits(PEERS[1]):
        ledger.report(PEERS[1], Fact.INVALID_MESSAGE)
    drawn = sampler_of(ledger, 0).draw(plain([group(), group(PEERS[2]), group(PEERS[1])]), 1, epoch=10, strangers=1.0)
    assert {each.group.peer for each in [*drawn.groups, *drawn.stand_ins]} == {PEERS[0], PEERS[2]}


def test_groups_and_stand_ins_of_a_round_share_its_bytes():
    large, small = constants.DRAWN_BYTES // 2 // 8 - 100, 50
    offered = plain([*(group(counter=number, length=large) for number in range(4)), group(counter=4, length=small)])
    everything = sampler_of(ledger_of(*PEERS), 0).draw(offered, 5, epoch=10, strangers=1.0)
    together = [each.group for each in (*everything.groups, *everything.stand_ins)]
    assert sum(each.size for each in together) <= constants.DRAWN_BYTES
    assert sorted(each.lengths[0] for each in together) == [small, large, large]
    assert [why for _, why in everything.not_drawn] == [NotDrawn.TOO_LARGE] * 2


def test_unfilled_slots_stay_empty():
    assert sampler_of(ledger_of(*PEERS), 0).draw(plain([]), 4, epoch=10, strangers=1.0).groups == []


def test_a_banned_peers_groups_are_never_drawn():
    ledger = ledger_of()
    for _ in range(4):
        ledger.report(PEERS[0], Fact.FALSE_CLAIM)
    assert ledger.of(PEERS[0]).state is PeerState.BANNED
    sampler = sampler_of(ledger, 0)
    assert not any(sampler.draw(plain([group()]), 4, epoch=10, strangers=1.0).groups for _ in range(50))


def test_a_group_counts_less_with_every_epoch_of_age():
    sampler = sampler_of(ledger_of(*PEERS), 0)
    (drawn,) = sampler.draw(plain([group(epoch=10)]), 1, epoch=12, strangers=1.0).groups
    assert drawn.weight == pytest.approx(constants.AGE_WEIGHT**2)


def test_older_than_the_limit_is_not_drawn():
    sampler = sampler_of(ledger_of(*PEERS), 0)
    assert sampler.draw(plain([group(epoch=10)]), 4, epoch=10 + constants.MAX_AGE + 1, strangers=1.0).groups == []


def test_a_group_of_very_long_completions_weighs_no_more_than_the_limit_allows():
    ledger = ledger_of(*PEERS)
    offered = [group(peer) for peer in PEERS[1:6]] + [group(PEERS[0], length=299)]
    drawn = sampler_of(ledger, 0).draw(plain(offered), 20, epoch=10, strangers=1.0).groups
    unit = mass_of(group())
    assert max(each.weight * mass_of(each.group) for each in drawn) <= constants.LOSS_WEIGHT_LIMIT * unit * 1.001


def test_strangers_with_hardly_any_mass_do_not_make_everybody_elses_groups_too_heavy():
    heavy = [group(counter=counter, length=400) for counter in range(4)]
    light = [group(PEERS[1], counter, length=1, right=1) for counter in range(40)]
    drawn = draw(sampler_of(ledger_of(PEERS[0]), 1), plain(heavy + light), 4, strangers=0.25)
    assert [each.weight for each in drawn if each.group.peer == PEERS[0]] == [1.0] * 3


def test_strangers_with_hardly_any_mass_take_no_more_places_than_others():
    heavy = [group(counter=counter, length=400) for counter in range(40)]
    light = [group(PEERS[1], counter, length=1, right=1) for counter in range(40)]
    drawn = draw(sampler_of(ledger_of(PEERS[0]), 1), plain(heavy + light), 8, strangers=0.25)
    assert sum(each.group.peer == PEERS[1] for each in drawn) <= 2


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("length", [400, 10_000])
def test_a_strangers_group_that_is_too_heavy_for_every_round_is_drawn_at_the_limit(length, share):
    """Else it would wait for four epochs, and no other stranger would be verified while enough of them wait."""
    heavy = group(PEERS[1], length=length)
    drawn = draw(sampler_of(ledger_of(PEERS[0]), 1), plain([heavy, group()]), 2, strangers=share)
    [weight] = [each.weight for each in drawn if each.group == heavy]
    assert weight * mass_of(heavy) <= constants.LOSS_WEIGHT_LIMIT * mass_of(group()) * 1.001


def test_a_strangers_group_of_which_more_fits_into_another_round_waits_for_it():
    strangers = [group(PEERS[1]), *(group(peer, length=150) for peer in PEERS[2:20])]
    for seed in range(20):
        drawn = draw(sampler_of(ledger_of(PEERS[0]), seed), plain([*strangers, group()]), 8, strangers=0.25)
        assert all(each.weight >= 0.25 for each in drawn)


def test_more_trust_is_drawn_more_often():
    ledger = ledger_of(*PEERS[:2])
    for _ in range(3):
        ledger.report(PEERS[0], Fact.VERIFIED_GROUP)
    ledger.report(PEERS[1], Fact.FALSE_CLAIM)
    sampler, firsts = sampler_of(ledger, 0), Counter()
    for _ in range(300):
        firsts[draw(sampler, plain([group(PEERS[0]), group(PEERS[1])]), 1)[0].group.peer] += 1
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
    """Neither if every stand-in takes the place of its group."""
    everything = sampler_of(ledger_of(*PEERS[:trusted]), seed).draw(plain(offered), wanted, epoch=10, strangers=0.5)
    together = [*everything.groups, *everything.stand_ins]
    assert len({each.group.key for each in together}) == len(together)
    require_bounds(everything.groups, offered, wanted, trusted)
    replaced = {each.stands_in.key for each in everything.stand_ins}
    left = [each for each in everything.groups if each.group.key not in replaced]
    require_bounds([*left, *everything.stand_ins], offered, wanted, trusted)


def require_bounds(drawn, offered, wanted, trusted):
    assert len(drawn) <= wanted
    if not offered:
        return
    counted = [each for each in offered if each.peer in PEERS[:trusted]] or offered
    unit = sorted(map(mass_of, counted))[len(counted) // 2]
    assert all(each.weight * mass_of(each.group) <= constants.LOSS_WEIGHT_LIMIT * unit * 1.001 for each in drawn)
    of_strangers = sum(each.weight * mass_of(each.group) for each in drawn if each.group.peer not in PEERS[:trusted])
    assert of_strangers <= max(1.0, 0.5 * wanted) * unit * 1.001


def test_the_weight_of_a_group_scales_nothing_but_the_weight():
    sampler = sampler_of(ledger_of(*PEERS), 0)
    (drawn,) = sampler.draw(plain([group()]), 1, epoch=10, strangers=1.0).groups
    assert replace(drawn.group) == group()
    assert sum(drawn.advantages) == pytest.approx(0)


def competence_of(**rates):
    known = PassRates()
    for dataset, right in rates.items():
        known.observe([LocalGroup(dataset, "", b"", (), Levels(tuple(int(number < right) for number in range(8))), ())])
    return known


def test_what_this_node_hardly_ever_gets_right_is_drawn_more_often():
    known = competence_of(products=1, chain_sum=7)
    offered = [group(PEERS[0]), replace(group(PEERS[1]), dataset="chain_sum")]
    firsts = Counter(
        sampler_of(ledger_of(*PEERS), seed, pass_rates=known, selection="informative")
        .draw(plain(offered), 1, epoch=10, strangers=1.0)
        .groups[0]
        .group.dataset
        for seed in range(200)
    )
    assert firsts["products"] > 170


def test_a_task_never_asked_before_is_as_wanted_as_any():
    known = competence_of(products=0)
    offered = [group(PEERS[0]), replace(group(PEERS[1]), dataset="chain_sum")]
    firsts = Counter(
        sampler_of(ledger_of(*PEERS), seed, pass_rates=known, selection="informative")
        .draw(plain(offered), 1, epoch=10, strangers=1.0)
        .groups[0]
        .group.dataset
        for seed in range(200)
    )
    assert 60 < firsts["products"] < 140


def test_peers_whose_groups_are_hardly_wanted_are_drawn_as_often_as_one_another():
    ledger, known = ledger_of(), competence_of(products=8)
    for peer in PEERS[:4]:
        ledger.report(peer, Fact.FALSE_CLAIM)
    offered = plain([replace(group(peer), k=k) for peer in PEERS[:4] for k in range(16)])
    drawn = Counter(
        each.group.peer
        for seed in range(50)
        for each in sampler_of(ledger, seed, pass_rates=known, selection="informative")
        .draw(offered, 8, epoch=10 + constants.MAX_AGE, strangers=1.0)
        .groups
    )
    assert all(70 <= drawn[peer] <= 130 for peer in PEERS[:4])


def test_a_right_answer_is_worth_less_to_a_node_that_mostly_knows_it():
    levels = Levels((1, 0) * 4)
    weak, strong = own_advantages(levels, 0.1), own_advantages(levels, 0.9)
    assert weak[0] > 5 * strong[0] > 0
    assert weak[0] == pytest.approx(0.9 / 0.35)


def test_own_advantages_do_not_depend_on_how_many_others_of_the_group_were_right():
    assert own_advantages(Levels((1, *[0] * 7)), 0.3)[0] == own_advantages(Levels((1,) * 7 + (0,)), 0.3)[0]


def test_without_an_own_measure_the_group_is_its_own_baseline():
    levels = Levels((1, *[0] * 7))
    assert own_advantages(levels, None) == external_advantages(levels)


def test_uniform_selection_does_not_ask_for_trust():
    ledger = ledger_of(*PEERS[:2])
    for _ in range(20):
        ledger.report(PEERS[0], Fact.VERIFIED_GROUP)
    firsts = Counter(
        sampler_of(ledger, seed, selection="uniform")
        .draw(plain([group(PEERS[0]), group(PEERS[1])]), 1, epoch=10, strangers=1.0)
        .groups[0]
        .group.peer
        for seed in range(300)
    )
    assert 120 < firsts[PEERS[0]] < 180
