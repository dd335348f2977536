"""What the operator decides about peers, and what a running ledger makes of it."""

from contextlib import closing

import pytest

from sapo_node.app.state import SCHEMA
from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.constants import Fact, PeerState, Tier
from sapo_node.trust.decisions import COMMAND, CONFIG, EVIDENCE, Decision, decide, pardon, take_back
from sapo_node.trust.ledger import Ledger, account_of, cause_of, states
from sapo_protocol import Equivocation, peer_id

KEY = bytes(range(32))
PEER = peer_id(KEY)
TRUST = Decision(PEER, PeerState.HEALTHY, COMMAND, 10.0, "a friend")
BAN = Decision(PEER, PeerState.BANNED, COMMAND, 20.0, "spam")
EQUIVOCATION = Equivocation(KEY, 1, 2, b"two envelopes")


@pytest.fixture
def shared(tmp_path):
    """The database of a node, and the same file as a command opens it."""
    file = tmp_path / "node.sqlite"
    with closing(Database(file, SCHEMA)) as node, closing(Database(file, SCHEMA)) as command:
        yield node, command


def lie(ledger, times=4):
    for _ in range(times):
        ledger.report(PEER, Fact.FALSE_CLAIM)


@pytest.mark.parametrize("earned", [0, 4], ids=["nothing known", "banned for lies"])
@pytest.mark.parametrize("decision", [TRUST, BAN], ids=["trust", "ban"])
def test_a_running_ledger_follows_a_decision_at_its_next_look(shared, decision, earned):
    database, command = shared
    ledger = Ledger(database)
    lie(ledger, earned)
    decide(command, decision)
    ledger.refresh()
    assert ledger.state(PEER) is decision.state
    assert account_of(command, PEER) == ledger.of(PEER)
    take_back(command, PEER, COMMAND)
    ledger.refresh()
    assert ledger.state(PEER) is (PeerState.BANNED if earned else PeerState.UNTRUSTED)


def test_a_decision_outlives_restarts_and_evidence(shared):
    database, command = shared
    decide(command, TRUST)
    lie(Ledger(database))
    ledger = Ledger(database, epoch=3)
    ledger.at(3)
    assert ledger.tier(PEER) is Tier.FRIEND


def test_a_look_tells_whom_it_banned_once(shared):
    database, command = shared
    ledger = Ledger(database)
    ledger.report(PEER, Fact.VERIFIED_GROUP)
    decide(command, BAN)
    assert ledger.refresh() == [PEER]
    assert ledger.refresh() == []
    assert ledger.banned_by_operator() == [PEER]


def test_a_ban_of_a_peer_never_heard_of_is_told_as_well(shared):
    database, command = shared
    ledger = Ledger(database)
    decide(command, BAN)
    assert ledger.refresh() == [PEER]


@pytest.mark.parametrize(("source", "other"), [(COMMAND, CONFIG), (CONFIG, COMMAND)])
def test_a_ban_of_either_source_stands_above_a_trust_of_the_other(database, source, other):
    decide(database, Decision(PEER, PeerState.HEALTHY, other))
    decide(database, Decision(PEER, PeerState.BANNED, source))
    assert (account_of(database, PEER).state, account_of(database, PEER).decision.source) == (PeerState.BANNED, source)


def test_a_pardon_ends_a_ban_for_offences_as_its_time_would(shared):
    database, command = shared
    ledger = Ledger(database, epoch=5)
    lie(ledger)
    pardon(command, PEER)
    assert account_of(command, PEER).state is PeerState.PROBATION
    ledger.refresh()
    account = ledger.of(PEER)
    assert (account.state, account.evidence.bad, account.since) == (PeerState.PROBATION, constants.BAN_OFFENCES, 5)
    lie(ledger, 1)
    assert not ledger.admits(PEER), "the pardon is used up"


def test_a_pardon_given_to_a_stopped_node_holds_when_it_starts(database):
    lie(Ledger(database))
    pardon(database, PEER)
    assert states(database) == {"banned": 1}
    assert Ledger(database).admits(PEER)


@pytest.mark.parametrize("mercy", [pardon, lambda database, _: decide(database, TRUST)], ids=["pardon", "trust"])
def test_nothing_ends_a_ban_for_equivocation(shared, mercy):
    database, command = shared
    ledger = Ledger(database)
    ledger.ban(EQUIVOCATION)
    mercy(command, PEER)
    ledger.refresh()
    assert not ledger.admits(PEER)
    assert cause_of(command, account_of(command, PEER), None).source == EVIDENCE
    assert not Ledger(database).admits(PEER)


def test_the_configuration_keeps_the_time_from_which_it_names_a_peer(database):
    Ledger(database, trusted=[PEER], now=lambda: 100.0)
    Ledger(database, trusted=[PEER], now=lambda: 200.0)
    assert account_of(database, PEER).decision.since == 100.0
    Ledger(database, banned=[PEER], now=lambda: 300.0)
    assert account_of(database, PEER).decision.since == 300.0


def test_a_peer_that_left_the_configuration_has_what_a_command_decided(database):
    decide(database, TRUST)
    Ledger(database, banned=[PEER])
    assert Ledger(database).state(PEER) is PeerState.HEALTHY


CAUSES = {
    "nobody": ([], (EVIDENCE, "has 0 of the 16 verified groups that healthy takes", None, None)),
    "a liar": ([Fact.FALSE_CLAIM] * 4, (EVIDENCE, "4 false claims", 700.0, 700.0 + 100.0 * constants.BAN_EPOCHS)),
}


@pytest.mark.parametrize("case", CAUSES)
def test_every_state_says_who_decided_it_for_what_since_when_and_until_when(database, case):
    facts, expected = CAUSES[case]
    ledger = Ledger(database, epoch=7)
    for fact in facts:
        ledger.report(PEER, fact)
    cause = cause_of(database, ledger.of(PEER), lambda epoch: 100.0 * epoch)
    assert (cause.source, cause.why, cause.since, cause.until) == expected


def test_an_operators_ban_has_his_words_and_no_end(database):
    decide(database, BAN)
    cause = cause_of(database, account_of(database, PEER), lambda epoch: 100.0 * epoch)
    assert (cause.source, cause.why, cause.since, cause.until) == (COMMAND, "spam", 20.0, None)


def test_a_ban_for_equivocation_has_no_end(database):
    Ledger(database, epoch=7).ban(EQUIVOCATION)
    cause = cause_of(database, account_of(database, PEER), lambda epoch: 100.0 * epoch)
    assert (cause.source, cause.since, cause.until) == (EVIDENCE, 700.0, None)
