"""The trust ledger: what facts do to standing, and what they never do."""

import random

import pytest

from sapo_node.trust import policy
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.policy import Evidence, Fact, Standing
from sapo_protocol import Equivocation, peer_id

PEER = peer_id(bytes(range(32)))


@pytest.fixture
def ledger(database, rng):
    return Ledger(database, rng=rng)


def earn(ledger, peer, groups):
    for _ in range(groups):
        ledger.report(peer, Fact.VERIFIED_GROUP)


def grown(ledger, peer=PEER, first_epoch=1):
    """A peer that earned its standing over epochs."""
    epoch = first_epoch
    while ledger.of(peer).standing is not Standing.HEALTHY:
        ledger.at(epoch)
        earn(ledger, peer, policy.EARNED_PER_EPOCH)
        epoch += 1
    return epoch


def test_a_stranger_is_a_newcomer_of_middling_trust(ledger):
    assert (ledger.of(PEER).standing, ledger.of(PEER).trust) == (Standing.NEWCOMER, 0.5)


def test_any_volume_within_one_epoch_promotes_nobody(ledger):
    ledger.at(1)
    earn(ledger, PEER, 1_000)
    ledger.at(2)
    assert ledger.of(PEER).standing is Standing.NEWCOMER


def test_verified_groups_over_epochs_promote(ledger):
    assert grown(ledger) - 1 == policy.HEALTHY_AFTER // policy.EARNED_PER_EPOCH + 1


def test_promotions_are_rationed_however_many_are_ready(ledger):
    peers = [peer_id(bytes([n]) * 32) for n in range(60)]
    healthy = []
    for epoch in range(1, 10):
        ledger.at(epoch)
        for peer in peers:
            earn(ledger, peer, policy.EARNED_PER_EPOCH)
        healthy.append(sum(ledger.of(peer).standing is Standing.HEALTHY for peer in peers))
    assert healthy == [0, 0, 4, 8, 12, 16, 20, 25, 31]  # four, then a quarter of those there are


@pytest.mark.parametrize(("lies", "standing"), [(1, Standing.NEWCOMER), (2, Standing.NEWCOMER), (4, Standing.BANNED)])
def test_a_newcomer_is_banned_for_lies_but_not_for_a_slip(ledger, lies, standing):
    for _ in range(lies):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert ledger.of(PEER).standing is standing


def test_four_lies_end_the_credit_of_any_history(ledger):
    epoch = grown(ledger)
    ledger.at(epoch)
    earn(ledger, PEER, 1_000)
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert ledger.of(PEER).trust < 0.5
    assert ledger.of(PEER).standing is Standing.PROBATION


def test_probation_ends_by_verified_groups(ledger):
    ledger.at(grown(ledger))
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    earn(ledger, PEER, 60)
    assert ledger.of(PEER).standing is Standing.HEALTHY


def test_about_twenty_invalid_messages_ban_their_sender(ledger):
    sent = 0
    while ledger.admits(PEER):
        ledger.report(PEER, Fact.INVALID_MESSAGE)
        sent += 1
    assert 15 <= sent <= 30


def test_standing_and_trust_outlive_a_restart(ledger, database):
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert Ledger(database, rng=random.Random(0)).of(PEER) == ledger.of(PEER)


def test_a_ban_for_lies_ends_in_probation_after_its_time(ledger):
    ledger.at(1)
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    ledger.at(policy.BAN_EPOCHS)
    assert ledger.of(PEER).standing is Standing.BANNED
    ledger.at(policy.BAN_EPOCHS + 1)
    assert ledger.of(PEER).standing is Standing.PROBATION


def test_a_ban_for_equivocation_never_ends_and_keeps_its_proof(ledger):
    ledger.at(1)
    ledger.convict(Equivocation(bytes(range(32)), 1, 2, b"two envelopes"))
    ledger.at(100 * policy.BAN_EPOCHS)
    assert ledger.of(PEER).standing is Standing.BANNED
    assert ledger.convicted(PEER) == b"two envelopes"


def test_a_peer_of_the_operators_trust_starts_healthy(database, rng):
    assert Ledger(database, trusted=[PEER], rng=rng).of(PEER).standing is Standing.HEALTHY


@pytest.mark.parametrize("earlier", [None, Fact.VERIFIED_GROUP])
def test_whom_the_operator_bans_stays_banned_whatever_was_earned(database, rng, earlier):
    if earlier:
        Ledger(database, trusted=[PEER], rng=rng).report(PEER, earlier)
    ledger = Ledger(database, epoch=1, banned=[PEER], rng=rng)
    assert not ledger.admits(PEER)
    ledger.at(100 * policy.BAN_EPOCHS)
    assert not ledger.admits(PEER)


def test_a_ban_by_the_operator_ends_like_others_once_it_is_taken_back(database, rng):
    Ledger(database, epoch=1, banned=[PEER], rng=rng).at(2)
    ledger = Ledger(database, epoch=3, rng=rng)
    assert not ledger.admits(PEER)
    ledger.at(policy.BAN_EPOCHS + 1)
    assert ledger.of(PEER).standing is Standing.PROBATION


def test_whom_the_operator_bans_is_not_forgotten_among_many_who_were_banned_later(database, rng, monkeypatch):
    monkeypatch.setattr("sapo_node.trust.ledger.MAX_STRANGERS", 3)
    ledger = Ledger(database, epoch=1, banned=[PEER], rng=rng)
    for number in range(8):
        for _ in range(4):
            ledger.report(f"liar {number}", Fact.FALSE_CLAIM)
    ledger.at(4)
    assert len(ledger.accounts()) == 4
    assert not ledger.admits(PEER)


def test_facts_entered_in_any_order_leave_trust_between_zero_and_one():
    rng = random.Random(3)
    evidence = Evidence()
    for _ in range(5_000):
        evidence = evidence.after(rng.choice(list(Fact)))
        assert 0 < evidence.trust < 1
        assert evidence.good <= 1 / (1 - policy.FORGETTING)


def test_renaming_peers_renames_the_result_and_nothing_else(rng):
    """No rule may depend on what a peer is called."""
    from sapo_node.database import Database
    from sapo_node.state import SCHEMA

    facts = [(rng.randrange(3), rng.choice([Fact.VERIFIED_GROUP, Fact.FALSE_CLAIM])) for _ in range(200)]
    outcomes = []
    for names in (["a", "b", "c"], ["c", "a", "b"]):
        ledger = Ledger(Database(None, SCHEMA), rng=random.Random(0))
        for who, fact in facts:
            ledger.report(names[who], fact)
        outcomes.append([(ledger.of(name).standing, ledger.of(name).evidence) for name in names])
    assert outcomes[0] == outcomes[1]
