"""The trust ledger: what facts do to state, and what they never do."""

import random

import pytest

from sapo_node.trust import constants
from sapo_node.trust.accounts import Offence, account_of, states
from sapo_node.trust.constants import Evidence, Fact, PeerState
from sapo_node.trust.ledger import Ledger
from sapo_protocol import Equivocation, peer_id

PEER = peer_id(bytes(range(32)))


@pytest.fixture
def ledger(database, rng):
    return Ledger(database, rng=rng)


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


def test_promotions_are_rationed_however_many_are_ready(ledger):
    peers = [peer_id(bytes([n]) * 32) for n in range(60)]
    healthy = []
    for epoch in range(1, 10):
        ledger.at(epoch)
        for peer in peers:
            earn(ledger, peer, constants.EARNED_PER_EPOCH)
        healthy.append(sum(ledger.of(peer).state is PeerState.HEALTHY for peer in peers))
    assert healthy == [0, 0, 4, 8, 12, 16, 20, 25, 31]  # four, then a quarter of those there are


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


def test_probation_ends_by_verified_groups(ledger):
    ledger.at(grown(ledger))
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    earn(ledger, PEER, 60)
    assert ledger.of(PEER).state is PeerState.HEALTHY


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
    assert Ledger(database, rng=random.Random(0)).of(PEER) == ledger.of(PEER)


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


def met(database, rng, facts):
    """A ledger that has seen these facts of PEER, at its last start."""
    ledger = Ledger(database, epoch=1, rng=rng)
    for fact in facts:
        ledger.report(PEER, fact)
    return ledger.of(PEER)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("word", "state"), [("trusted", PeerState.HEALTHY), ("banned", PeerState.BANNED)], ids=["trusted", "banned"]
)
def test_the_operators_word_holds_at_every_start_for_exactly_as_long_as_it_stands(database, rng, before, word, state):
    earned = met(database, rng, BEFORE[before])
    for epoch in (1, 2):
        ledger = Ledger(database, epoch=epoch, rng=rng, **{word: [PEER]})
        ledger.at(epoch)
        assert ledger.state(PEER) is ledger.of(PEER).state is state
        assert account_of(database, PEER) == ledger.of(PEER)
    assert Ledger(database, epoch=2, rng=rng).of(PEER) == earned


def test_an_operators_ban_lasts_for_as_long_as_it_stands(database, rng):
    ledger = Ledger(database, epoch=1, banned=[PEER], rng=rng)
    ledger.at(100 * constants.BAN_EPOCHS)
    assert not ledger.admits(PEER)


def test_what_a_peer_earned_counts_again_when_the_operator_takes_a_ban_back(database, rng):
    grown(Ledger(database, rng=rng))
    assert not Ledger(database, banned=[PEER], rng=rng).admits(PEER)
    assert Ledger(database, rng=rng).state(PEER) is PeerState.HEALTHY


def test_what_a_trusted_peer_does_wrong_counts_once_it_is_trusted_no_more(database, rng, caplog):
    ledger = Ledger(database, trusted=[PEER], rng=rng)
    for _ in range(4):
        ledger.report(PEER, Fact.FALSE_CLAIM)
    assert ledger.state(PEER) is PeerState.HEALTHY
    assert "were it not named in `trusted`" in caplog.text
    assert not Ledger(database, rng=rng).admits(PEER)


def test_a_trusted_peer_that_equivocates_is_banned_now_and_at_every_start(database, rng, caplog):
    ledger = Ledger(database, trusted=[PEER], rng=rng)
    ledger.ban(Equivocation(bytes(range(32)), 1, 2, b"two envelopes"))
    assert not ledger.admits(PEER)
    assert account_of(database, PEER).state is PeerState.BANNED
    assert not Ledger(database, trusted=[PEER], rng=rng).admits(PEER)
    assert "stays banned" in caplog.text


def test_standings_are_counted_with_the_operators_word(database, rng):
    other = peer_id(bytes(32))
    met(database, rng, [Fact.VERIFIED_GROUP])
    Ledger(database, trusted=[PEER], banned=[other], rng=rng)
    assert states(database) == {"banned": 1, "healthy": 1}


def test_an_operators_ban_that_an_older_version_stored_ends_with_the_line(database, rng):
    met(database, rng, [Fact.VERIFIED_GROUP])
    database.execute("UPDATE ledger SET standing = 'banned'")
    assert Ledger(database, rng=rng).state(PEER) is PeerState.UNTRUSTED


def test_whom_the_operator_bans_is_not_forgotten_among_many_who_were_banned_later(database, rng, monkeypatch):
    monkeypatch.setattr("sapo_node.trust.ledger.MAX_STRANGERS", 3)
    met(database, rng, [Fact.INVALID_MESSAGE])
    ledger = Ledger(database, epoch=1, banned=[PEER], rng=rng)
    for number in range(8):
        for _ in range(4):
            ledger.report(f"liar {number}", Fact.FALSE_CLAIM)
    ledger.at(4)
    assert len(ledger.accounts()) == 4
    assert PEER in {account.peer for account in ledger.accounts()}


def test_bad_evidence_keeps_its_kind_its_count_and_its_time_over_a_restart(database, rng):
    times = iter([10.0, 20.0, 30.0])
    ledger = Ledger(database, rng=rng, now=lambda: next(times))
    for fact in (Fact.FORGED_SIGNATURE, Fact.FALSE_CLAIM, Fact.FORGED_SIGNATURE, Fact.VERIFIED_GROUP):
        ledger.report(PEER, fact)
    again = Ledger(database, rng=rng)
    assert again.offences(PEER) == [Offence(Fact.FORGED_SIGNATURE, 2, 30.0), Offence(Fact.FALSE_CLAIM, 1, 20.0)]
    assert [str(each) for each in again.offences(PEER)] == ["2 forged signatures", "1 false claim"]


def test_offences_of_a_peer_that_is_forgotten_are_forgotten_as_well(database, rng, monkeypatch):
    monkeypatch.setattr("sapo_node.trust.ledger.MAX_STRANGERS", 0)
    met(database, rng, [Fact.INVALID_MESSAGE])
    ledger = Ledger(database, epoch=1, rng=rng)
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
        ledger = Ledger(Database(None, SCHEMA), rng=random.Random(0))
        for who, fact in facts:
            ledger.report(names[who], fact)
        outcomes.append([(ledger.of(name).state, ledger.of(name).evidence) for name in names])
    assert outcomes[0] == outcomes[1]
