"""Verification on demand: whose rollouts are looked at, and how many."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from context import context_of
from fetching import fetcher_of
from rollouts import right_and_wrong, rollout
from sapo_node.groups.book import Book, newest
from sapo_node.groups.record import NotDrawn, Unusable
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import VerificationScheduler, Verifier
from sapo_protocol import peer_id
from swarm_parts import OpenScorer

LINK = "link"


@pytest.fixture
def peers(author):
    """Authors: a friend, one that is healthy by what it earned, and strangers."""
    return [replace(author, key=Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 9)]


@pytest.fixture
def ledger(database, peers):
    friend, proven, *_ = map(name, peers)
    ledger = Ledger(database, trusted=[friend])
    for epoch in (1, 2, 3):
        ledger.at(epoch)
        for _ in range(constants.EARNED_PER_EPOCH):
            ledger.report(proven, Fact.VERIFIED_GROUP)
    return ledger


@pytest.fixture
def verifier(manifest, ledger, rng):
    return Verifier(context_of(manifest, rng), OpenScorer(), ledger)


@pytest.fixture
def book(database, manifest, rng, ledger):
    return Book(database, manifest, rng=rng, tier=ledger.tier)


@pytest.fixture
def verified(database):
    """How many groups of each peer were looked at."""
    return lambda: dict(database.rows("SELECT peer, count(*) FROM groups GROUP BY peer"))


@pytest.fixture
def fetcher(manifest, rng, database, ledger):
    return fetcher_of(context_of(manifest, rng), database, ledger)


@pytest.fixture
def scheduler(book, verifier, ledger, fetcher):
    return VerificationScheduler(book=book, verifier=verifier, ledger=ledger, fetcher=fetcher)


def name(author):
    return peer_id(author.issuer)


def one_group(author, counter=0, **changes):
    """A rollout of one good group; what is changed in its header spoils it."""
    group, body, _ = right_and_wrong(author, counter=counter)
    return rollout(author, [replace(group, **changes)], [body], counter=counter)


@pytest.fixture
def put(book, ledger):
    def put(author, counters, *, link=LINK, **changes):
        for counter in counters:
            book.arrive(one_group(author, counter, **changes), link=link, tier=ledger.tier(name(author)))

    return put


async def test_nothing_is_verified_for_a_node_that_wants_nothing(scheduler, put, peers, verified):
    put(peers[0], [0])
    await scheduler.verify_pending(0)
    assert verified() == {}


async def test_each_tier_is_verified_until_it_alone_could_fill_twice_what_is_wanted(scheduler, put, peers, verified):
    for peer in peers[:3]:
        put(peer, range(12))
    await scheduler.verify_pending(4)
    assert verified() == {name(peer): 8 for peer in peers[:3]}
    await scheduler.verify_pending(4)
    assert verified() == {name(peer): 8 for peer in peers[:3]}


def groups_of(author, count, counter=0):
    """A rollout of so many good groups."""
    groups, bodies, _ = zip(*(right_and_wrong(author, k, counter=counter) for k in range(count)), strict=True)
    return rollout(author, groups, bodies, counter=counter)


async def test_a_link_whose_rollouts_have_sixteen_groups_has_as_many_groups_as_one_whose_rollouts_have_four(
    scheduler, book, peers, verified
):
    """Both have turns by chance: each has 128 of 256 groups, within noise."""
    sixteen, four = peers[2:4]
    for counter in range(64):
        book.arrive(groups_of(four, 4, counter), link=name(four), tier=Tier.STRANGER)
        if counter < 16:
            book.arrive(groups_of(sixteen, 16, counter), link=name(sixteen), tier=Tier.STRANGER)
    for _ in range(4):
        await scheduler.verify_pending(1_000)
    assert sum(verified().values()) == 4 * constants.TURN_GROUPS * constants.VERIFICATIONS_PER_ROUND
    assert 80 < verified()[name(sixteen)] < 176


async def test_a_large_rollout_is_verified_whole_in_several_turns_and_none_of_its_groups_counts_as_left_out(
    scheduler, verifier, peers, book
):
    book.arrive(groups_of(peers[2], 16), link=LINK, tier=Tier.STRANGER)
    await scheduler.verify_pending(1_000)
    assert book.per_peer() == {name(peers[2]): 16}
    assert verifier.unusable == {}


def test_what_a_turn_leaves_of_a_rollout_waits_on_its_link_and_in_its_tier(book, peers, database):
    book.arrive(groups_of(peers[2], 16), link=LINK, tier=Tier.PROVEN)
    book.draw(Tier.PROVEN)
    assert database.rows("SELECT link, tier FROM arrived") == [(LINK, Tier.PROVEN)]


def test_which_groups_of_a_rollout_a_turn_takes_is_drawn_by_the_node(database, manifest, peers):
    """Else an author would choose which of its groups come first."""
    first = set()
    for seed in range(8):
        queue = Book(database, manifest, rng=random.Random(seed))
        queue.arrive(groups_of(peers[2], 16), link=LINK, tier=Tier.STRANGER)
        first.add(tuple(k for k, body in enumerate(queue.draw(Tier.STRANGER).rollout.bodies) if body))
        queue.forget(name(peers[2]))
    assert len(first) == 8


async def test_a_tier_has_a_bounded_number_of_turns_however_little_they_give(scheduler, put, peers, verified):
    put(peers[2], range(constants.VERIFICATIONS_PER_ROUND + 4), digest=bytes(32))
    await scheduler.verify_pending(100)
    assert verified() == {name(peers[2]): constants.VERIFICATIONS_PER_ROUND}


async def test_strangers_are_verified_at_once_and_take_no_turn_of_a_friend(scheduler, put, peers, book):
    for stranger in peers[2:]:
        put(stranger, range(20))
    put(peers[0], range(3))
    await scheduler.verify_pending(4)
    held = book.per_peer()
    assert held.pop(name(peers[0])) == 3
    assert sum(held.values()) == 8


async def test_peers_on_probation_are_verified_after_all_strangers(scheduler, put, peers, ledger, verified):
    """Each came by a link of its own, as the honest stranger did."""
    *released, stranger = peers[2:]
    for peer in map(name, released):
        while ledger.admits(peer):
            ledger.report(peer, Fact.INVALID_MESSAGE)
    ledger.at(3 + constants.BAN_EPOCHS)
    for peer in released:
        assert ledger.state(name(peer)) is PeerState.PROBATION
        put(peer, range(4), link=name(peer))
    put(stranger, range(8), link=name(stranger))
    await scheduler.verify_pending(4)
    assert verified() == {name(stranger): 8}


async def test_peers_on_probation_are_verified_where_nobody_else_waits(scheduler, put, peers, ledger, verified):
    for _ in range(4):
        ledger.report(name(peers[2]), Fact.FALSE_CLAIM)
    ledger.at(3 + constants.BAN_EPOCHS)
    put(peers[2], range(2))
    await scheduler.verify_pending(4)
    assert verified() == {name(peers[2]): 2}


async def test_of_a_peer_that_is_banned_for_what_was_found_nothing_stays(scheduler, put, peers, ledger, book):
    put(peers[2], range(20), claims=(False,) * 7 + (True,))
    await scheduler.verify_pending(4)
    assert not ledger.admits(name(peers[2]))
    assert book.draw(Tier.STRANGER) is None


async def test_the_good_groups_of_the_rollout_for_which_its_peer_is_banned_are_left_out(
    scheduler, book, ledger, database, author
):
    (good, *others), bodies = zip(*(right_and_wrong(author, k)[:2] for k in range(6)), strict=True)
    together = rollout(author, [good, *(replace(each, claims=(False,) * 7 + (True,)) for each in others)], bodies)
    book.arrive(together, link=LINK, tier=Tier.STRANGER)
    await scheduler.verify_pending(1)
    assert not ledger.admits(name(author))
    found = {each.k: each.why for each in newest(database, 6)}
    assert found == {0: NotDrawn.BANNED} | dict.fromkeys(range(1, 6), Unusable.FALSE_CLAIM)


def test_a_peer_that_connects_again_and_again_under_fresh_keys_is_one_link(author, book):
    """63 links that have ended, and one that is there: 256 of 512 turns, within noise."""
    *gone, stays = [replace(author, key=Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 65)]

    def bring(rollout):
        book.arrive(rollout, link=name(rollout.opened), tier=Tier.STRANGER)
        if rollout.opened.issuer != stays.issuer:
            book.end_link(name(rollout.opened))

    for each in (*gone, stays):
        bring(one_group(each))
    turns = Counter()
    for _ in range(512):
        drawn = book.draw(Tier.STRANGER).rollout
        turns[name(drawn.opened)] += 1
        bring(drawn)
    assert 200 < turns[name(stays)] < 312


def test_all_links_from_before_a_restart_are_one(author, book, database, manifest, rng):
    *gone, stays = [replace(author, key=Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 65)]
    for each in gone:
        book.arrive(one_group(each), link=name(each), tier=Tier.STRANGER)
    again = Book(database, manifest, rng=rng)
    again.arrive(one_group(stays), link=name(stays), tier=Tier.STRANGER)
    drawn = [again.draw(Tier.STRANGER).rollout.opened.issuer for _ in range(8)]
    assert stays.issuer in drawn


def test_a_link_has_as_many_turns_with_64_keys_as_with_one(author, book):
    """One link brings the rollouts of 64 keys, and seven bring those of one each: 64 of 512 turns, within noise."""
    keys = [replace(author, key=Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 72)]
    links = dict.fromkeys(map(name, keys), "crowded") | {name(each): name(each) for each in keys[64:]}
    rounds = {name(each): one_group(each) for each in keys}
    for peer, each in rounds.items():
        book.arrive(each, link=links[peer], tier=Tier.STRANGER)
    turns = Counter()
    for _ in range(512):
        drawn = book.draw(Tier.STRANGER).rollout
        peer = name(drawn.opened)
        turns[links[peer]] += 1
        book.arrive(rounds[peer], link=links[peer], tier=Tier.STRANGER)
    assert len(turns) == 8
    assert all(36 < count < 92 for count in turns.values())


@pytest.mark.parametrize(("block", "least", "most"), [("198.51.100.0/24", 98, 158), ("", 2, 31)])
def test_an_address_block_has_the_turns_of_one_link_whatever_it_connects(author, book, block, least, most):
    """Fifteen links of one block, and one of another: half of 256 turns, and one in sixteen without blocks."""
    *crowd, honest = [replace(author, key=Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 17)]
    for each in crowd:
        book.begin_link(name(each), block)
    book.begin_link(name(honest), "")
    rounds = {name(each): one_group(each) for each in (*crowd, honest)}
    for peer, each in rounds.items():
        book.arrive(each, link=peer, tier=Tier.STRANGER)
    turns = Counter()
    for _ in range(256):
        peer = name(book.draw(Tier.STRANGER).rollout.opened)
        turns[peer] += 1
        book.arrive(rounds[peer], link=peer, tier=Tier.STRANGER)
    assert least < turns[name(honest)] < most
    assert len(turns) == 16


async def test_a_flood_that_a_neighbour_forwards_takes_no_turn_of_what_the_neighbour_signed(
    scheduler, put, peers, verified
):
    neighbour, *keys = peers[2:]
    for key in keys:
        put(key, range(8), link=name(neighbour), digest=bytes(32))
    put(neighbour, range(2), link=name(neighbour))
    await scheduler.verify_pending(1)
    assert verified() == {name(neighbour): 2}


@pytest.fixture
def flooded(put, peers):
    """A neighbour that forwards the rollouts of an honest peer and of four keys whose rollouts give no group."""
    neighbour, honest, *flooding = peers[2:]
    for key in flooding:
        put(key, range(1, 65), link=name(neighbour), digest=bytes(32))
    return neighbour, honest


async def test_a_peer_that_gave_a_group_has_turns_beside_a_flood_of_fresh_keys_behind_its_neighbour(
    scheduler, put, peers, verified, flooded
):
    """64 turns, of which the honest peer has one in five by the lottery alone."""
    neighbour, honest = flooded
    put(honest, [0])
    await scheduler.verify_pending(1)
    put(honest, range(1, 65), link=name(neighbour))
    for _ in range(4):
        await scheduler.verify_pending(100)
    assert 26 <= verified()[name(honest)] - 1 <= 50


async def test_a_peer_that_has_spent_what_it_gave_has_the_turns_of_any_key(scheduler, put, peers, verified, flooded):
    neighbour, honest = flooded
    put(honest, [0])
    await scheduler.verify_pending(1)
    put(honest, range(1, 65), link=name(neighbour), digest=bytes(32))
    for _ in range(4):
        await scheduler.verify_pending(100)
    assert verified()[name(honest)] - 1 <= 24
