"""The trust ledger: what facts do to state, and what they never do."""

import random

import pytest

from sapo_node.trust import constants
from sapo_node.trust.constants import Evidence, Fact, PeerState
from sapo_node.trust.ledger import Ledger, Offence, account_of, states
from sapo_protocol import Equivocation, peer_id

PEER = peer_id(bytes(range(32)))


@pytest.fixture
def ledger(database):
    return Ledger(database)


def earn(ledger, peer, groups):
    for _ in range(groups):
        ledger.report(peer, Fact.VERIFIED_GROUP)


def grown(ledger, peer=PEER, first_epoch=1):
    """A peer that become healthy over epochs."""
    epoch = first_epoch
    while ledger.of(peer).state is not PeerState.HEALTHY:
        ledger.at(epoch)
        earn(ledger, peer, constants.EARNED_PER_EPOCH)
        epoch += 1
    return epoch


def test_a_stranger_is_a_newcomer_of_middling_trust(ledger):
    assert (ledger.of(PEER).state, ledger.of(PEER).trust) == (PeerState.UNTRUSTED, 0.5)


def test_any_volume_within_one_epoch_promotes_nobody(ledger):
    ledger.at(1)
    earn(ledger, PEER, 1_000)
    ledger.at(2)
    assert ledger.of(PEER).state is PeerState.UNTRUSTED


def test_verified_groups_over_epochs_promote(ledger):
    assert grown(ledger) - 1 == constants.HEALTHY_AFTER // constants.EARNED_PER_EPOCH + 1


@pytest.mark.parametrize(("accepted", "healthy"), [(0.0, False), (0.4, False), (1.0, True)])
def test_what_filters_reject_makes_nobody_healthy(ledger, accepted, healthy):
    for epoch in range(1, 5):
        ledger.at(epoch)
        earn(ledger, PEER, constants.EARNED_PER_EPOCH)
        ledger.judged([(PEER, accepted)] * 2)
    ledger.at(5)
    assert (ledger.of(PEER).state is PeerState.HEALTHY) is healthy


def test_a_rejected_group_is_no_offence_and_is_known_after_a_restart(ledger, database):
    earn(ledger, PEER, 3)
    before = ledger.of(PEER)
    ledger.judged([(PEER, 0.25)])
    after = Ledger(database).of(PEER)
    assert (after.trust, after.state, after.acceptance.share) == (before.trust, before.state, 0.25)
    ledger.report(PEER, Fact.INVALID_MESSAGE)
    assert ledger.of(PEER).acceptance == after.acceptance


def test_all_who_have_earned_it_are_promoted_when_an_epoch_begins(ledger):
    peers = [peer_id(bytes([n]) * 32) for n in range(60)]
    for epoch in (1, 2):
        ledger.at(epoch)
        for peer in peers:
            earn(ledger, peer, constants.EARNED_PER_EPOCH)
    assert ledger.healthy() == frozenset()
    ledger.at(3)
    assert ledger.healthy() == set(peers)


def test_who_has_earned_enough_and_is_not_trusted_enough_is_not_promoted(ledger):
    for epoch in (1, 2):
        ledger.at(epoch)
        earn(ledger, PEER, constants.EARNED_PER_EPOCH)
    ledger.report(PEER, Fact.FALSE_CLAIM)
    ledger.at(3)
    assert ledger.of(PEER).state is PeerState.UNTRUSTED


@pytest.mark.parametrize(("lies", "state"), [(1, PeerState.UNTRUSTED), (2, PeerState.UNTRUSTED), (4, PeerState.BANNED)])
def test_a_newcomer_is_banned_for_lies_but_not_for_a_slip(ledger, lies, state):
    for _ in range(lies):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert ledger.of(PEER).state is state


def test_four_lies_end_the_credit_of_any_history(ledger):
    epoch = grown(ledger)
    ledger.at(epoch)
    earn(ledger, PEER, 1_000)
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert ledger.of(PEER).trust < 0.5
    assert ledger.of(PEER).state is PeerState.PROBATION


def test_probation_ends_by_verified_groups_as_that_of_a_stranger_who_must_earn_again(ledger):
    epoch = grown(ledger)
    ledger.at(epoch)
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    earn(ledger, PEER, 60)
    assert (ledger.of(PEER).state, ledger.of(PEER).earned) == (PeerState.UNTRUSTED, 0)
    ledger.at(epoch + 1)
    assert ledger.of(PEER).state is PeerState.UNTRUSTED
    assert grown(ledger, first_epoch=epoch + 1) > epoch + 2


@pytest.fixture
def released(ledger):
    """The ledger when the ban of forty keys ends, who sent about twenty invalid messages each; and the keys."""
    peers = [peer_id(bytes([n]) * 32) for n in range(40)]
    ledger.at(1)
    for peer in peers:
        while ledger.admits(peer):
            ledger.report(peer, Fact.INVALID_MESSAGE)
    ledger.at(1 + constants.BAN_EPOCHS)
    assert {ledger.state(peer) for peer in peers} == {PeerState.PROBATION}
    return ledger, peers


def test_a_ban_that_ends_leaves_less_than_a_stranger_has(released):
    ledger, peers = released
    assert all(ledger.of(peer).trust == 1 / 17 for peer in peers)


def test_a_ban_does_not_launder_trust(released):
    """Four good groups each made all of them healthy, with no ration."""
    ledger, peers = released
    for peer in peers:
        earn(ledger, peer, 4)
    ledger.at(2 + constants.BAN_EPOCHS)
    assert {ledger.state(peer) for peer in peers} == {PeerState.PROBATION}


def test_after_a_ban_one_false_claim_bans_again(released):
    ledger, peers = released
    ledger.report(peers[0], Fact.FALSE_CLAIM)
    assert not ledger.admits(peers[0])


def test_after_a_ban_thirty_verified_groups_make_a_peer_untrusted_and_count_for_nothing_more(released):
    ledger, peers = released
    needed = 0
    while ledger.state(peers[0]) is PeerState.PROBATION:
        earn(ledger, peers[0], 1)
        needed += 1
    assert 25 <= needed <= 35
    assert (ledger.of(peers[0]).state, ledger.of(peers[0]).earned) == (PeerState.UNTRUSTED, 0)


@pytest.mark.parametrize("fact", [Fact.INVALID_MESSAGE, Fact.FORGED_SIGNATURE])
def test_about_twenty_invalid_messages_ban_their_sender(ledger, fact):
    sent = 0
    while ledger.admits(PEER):
        ledger.report(PEER, fact)
        sent += 1
    assert 15 <= sent <= 30


def test_standing_and_trust_outlive_a_restart(ledger, database):
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert Ledger(database).of(PEER) == ledger.of(PEER)


def test_a_ban_for_lies_ends_in_probation_after_its_time(ledger):
    ledger.at(1)
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    ledger.at(constants.BAN_EPOCHS)
    assert ledger.of(PEER).state is PeerState.BANNED
    ledger.at(constants.BAN_EPOCHS + 1)
    assert ledger.of(PEER).state is PeerState.PROBATION


def test_a_ban_for_equivocation_never_ends_and_keeps_its_proof(ledger):
    ledger.at(1)
    ledger.ban(Equivocation(bytes(range(32)), 1, 2, b"two envelopes"))
    ledger.at(100 * constants.BAN_EPOCHS)
    assert ledger.of(PEER).state is PeerState.BANNED
    assert ledger.banned_by_evidence(PEER) == b"two envelopes"


BEFORE = {
    "nobody": [],
    "an untrusted peer": [Fact.VERIFIED_GROUP],
    "one that lied": [Fact.FALSE_CLAIM] * 4,
}


def met(database, facts):
    """A ledger that has seen these facts of PEER, at its last start."""
    ledger = Ledger(database, epoch=1)
    for fact in facts:
        ledger.report(PEER, fact)
    return ledger.of(PEER)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("word", "state"), [("trusted", PeerState.HEALTHY), ("banned", PeerState.BANNED)], ids=["trusted", "banned"]
)
def test_the_operators_word_holds_at_every_start_for_exactly_as_long_as_it_stands(database, before, word, state):
    earned = met(database, BEFORE[before])
    for epoch in (1, 2):
        ledger = Ledger(database, epoch=epoch, **{word: [PEER]})
        ledger.at(epoch)
        assert ledger.state(PEER) is ledger.of(PEER).state is state
        assert account_of(database, PEER) == ledger.of(PEER)
    assert Ledger(database, epoch=2).of(PEER) == earned


def test_an_operators_ban_lasts_for_as_long_as_it_stands(database):
    ledger = Ledger(database, epoch=1, banned=[PEER])
    ledger.at(100 * constants.BAN_EPOCHS)
    assert not ledger.admits(PEER)


def test_what_a_peer_earned_counts_again_when_the_operator_takes_a_ban_back(database):
    grown(Ledger(database))
    assert not Ledger(database, banned=[PEER]).admits(PEER)
    assert Ledger(database).state(PEER) is PeerState.HEALTHY


def test_what_a_trusted_peer_does_wrong_counts_once_it_is_trusted_no_more(database, caplog):
    ledger = Ledger(database, trusted=[PEER])
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert ledger.state(PEER) is PeerState.HEALTHY
    assert "were it not trusted by the operator" in caplog.text
    assert not Ledger(database).admits(PEER)


def test_a_trusted_peer_that_equivocates_is_banned_now_and_at_every_start(database, caplog):
    ledger = Ledger(database, trusted=[PEER])
    ledger.ban(Equivocation(bytes(range(32)), 1, 2, b"two envelopes"))
    assert not ledger.admits(PEER)
    assert account_of(database, PEER).state is PeerState.BANNED
    assert not Ledger(database, trusted=[PEER]).admits(PEER)
    assert "stays banned" in caplog.text


def test_standings_are_counted_with_the_operators_word(database):
    other = peer_id(bytes(32))
    met(database, [Fact.VERIFIED_GROUP])
    Ledger(database, trusted=[PEER], banned=[other])
    assert states(database) == {"banned": 1, "healthy": 1}


def test_whom_the_operator_bans_is_not_forgotten_among_many_who_were_banned_later(database, monkeypatch):
    monkeypatch.setattr("sapo_node.trust.ledger.MAX_STRANGERS", 3)
    met(database, [Fact.INVALID_MESSAGE])
    ledger = Ledger(database, epoch=1, banned=[PEER])
    for number in range(8):
        for _ in range(4):
            ledger.report(f"liar {number}", Fact.FALSE_CLAIM)
    ledger.at(4)
    assert len(ledger.accounts()) == 4
    assert PEER in {account.peer for account in ledger.accounts()}


def test_bad_evidence_keeps_its_kind_its_count_and_its_time_over_a_restart(database):
    times = iter([10.0, 20.0, 30.0])
    ledger = Ledger(database, now=lambda: next(times))
    for fact in (Fact.FORGED_SIGNATURE, Fact.FALSE_CLAIM, Fact.FORGED_SIGNATURE, Fact.VERIFIED_GROUP):
        ledger.report(PEER, fact)
    again = Ledger(database)
    assert again.offences(PEER) == [Offence(Fact.FORGED_SIGNATURE, 2, 30.0), Offence(Fact.FALSE_CLAIM, 1, 20.0)]
    assert [str(each) for each in again.offences(PEER)] == ["2 forged signatures", "1 false claim"]


def test_offences_of_a_peer_that_is_forgotten_are_forgotten_as_well(database, monkeypatch):
    monkeypatch.setattr("sapo_node.trust.ledger.MAX_STRANGERS", 0)
    met(database, [Fact.INVALID_MESSAGE])
    ledger = Ledger(database, epoch=1)
    ledger.at(5)
    assert ledger.offences(PEER) == []


def test_facts_entered_in_any_order_leave_trust_between_zero_and_one():
    rng = random.Random(3)
    evidence = Evidence()
    for _ in range(5_000):
        evidence = evidence.after(rng.choice(list(Fact)))
        assert 0 < evidence.trust < 1
        assert evidence.good <= 1 / (1 - constants.FORGETTING)


def test_renaming_peers_renames_the_result_and_nothing_else(rng):
    """No rule may depend on what a peer is called."""
    from sapo_node.app.state import SCHEMA
    from sapo_node.storage.database import Database

    facts = [(rng.randrange(3), rng.choice([Fact.VERIFIED_GROUP, Fact.FALSE_CLAIM])) for _ in range(200)]
    outcomes = []
    for names in (["a", "b", "c"], ["c", "a", "b"]):
        ledger = Ledger(Database(None, SCHEMA))
        for who, fact in facts:
            ledger.report(names[who], fact)
        outcomes.append([(ledger.of(name).state, ledger.of(name).evidence) for name in names])
    assert outcomes[0] == outcomes[1]
