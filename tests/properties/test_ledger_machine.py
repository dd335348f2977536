"""The trust ledger against plain histories: what every peer did is kept, and its account computed from all of it.

Beside it runs a second ledger in which the same peers have other names: no rule may depend on what a peer is called.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sapo_node.storage.database import Database
from sapo_node.trust import constants, ledger
from sapo_node.trust.constants import Fact, PeerState
from sapo_node.trust.ledger import Ledger
from sapo_protocol import Equivocation, peer_id

KEYS = [bytes([n]) * 32 for n in range(1, 7)]
OTHER_KEYS = [bytes([100 - n]) * 32 for n in range(1, 7)]
NAMES, OTHER_NAMES = [[peer_id(key) for key in keys] for keys in (KEYS, OTHER_KEYS)]
TRUSTED = 0
PEERS = range(len(KEYS))
STRANGERS = 2
"""The bound on rows of strangers, made small enough to be met."""

peers = st.sampled_from(PEERS)


@dataclass
class History:
    """All that is known of one peer since it was last heard of anew."""

    state: PeerState
    since: int = 0
    facts: list[Fact] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """The epoch of each verified group that counts towards state."""
    forgiven: int = 0
    """How many of them were spent on the end of a probation."""
    heard: int = 0
    """The epoch of the last fact."""
    guilt: float = 0.0
    """What a conviction, or the end of a ban, put in the place of all evidence before it."""
    banned_by_evidence: bool = False

    def evidence(self) -> tuple[float, float]:
        """Each fact at its weight, faded by the weights of all that came after it."""
        good, bad, later = 0.0, 0.0, 0.0
        for fact in reversed(self.facts):
            weight = constants.OFFENCE.get(fact, 1.0)
            if fact is Fact.VERIFIED_GROUP:
                good += weight * constants.FORGETTING**later
            else:
                bad += weight * constants.FORGETTING**later
            later += weight
        return good, bad + self.guilt * constants.FORGETTING**later

    def trust(self) -> float:
        good, bad = self.evidence()
        return (good + 1) / (good + constants.LIE_FACTOR * bad + 2)

    def learn(self, fact: Fact, epoch: int) -> None:
        self.facts.append(fact)
        self.heard = epoch
        if fact is Fact.VERIFIED_GROUP and self.counted.count(epoch) < constants.EARNED_PER_EPOCH:
            self.counted.append(epoch)
        (_, bad), trust = self.evidence(), self.trust()
        if bad >= constants.BAN_OFFENCES and trust < constants.BAN_TRUST:
            self.become(PeerState.BANNED, epoch)
        elif self.state is PeerState.HEALTHY and trust < constants.PROBATION_TRUST:
            self.become(PeerState.PROBATION, epoch)
        elif self.state is PeerState.PROBATION and trust >= constants.RECOVERED_TRUST:
            self.become(PeerState.UNTRUSTED, epoch)
            self.forgiven += len(self.counted) - self.forgiven

    def become(self, state: PeerState, epoch: int) -> None:
        if state is not self.state:
            self.since = epoch
            self.state = state

    def earned(self) -> int:
        return len(self.counted) - self.forgiven

    def is_ready(self) -> bool:
        enough = self.earned() >= constants.HEALTHY_AFTER
        return self.state is PeerState.UNTRUSTED and enough and self.trust() >= constants.RECOVERED_TRUST

    def is_forgettable(self, epoch: int) -> bool:
        return self.state is not PeerState.HEALTHY and self.heard < epoch - 1

    def keeps_its_row(self) -> tuple[bool, int, int]:
        """The longer, the higher."""
        return self.state is PeerState.BANNED, self.earned(), self.since


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.epoch = self.settled = 0
        """The epoch that runs, and the last for which all that is due in an epoch was done."""
        self.histories: dict[int, History] = {}
        self.databases = [Database(None, (ledger.SCHEMA,)) for _ in range(2)]
        self.open()
        self.an_epoch_begins(1)

    @rule(peer=peers, fact=st.sampled_from(list(Fact)), count=st.integers(1, 5))
    def a_peer_is_seen(self, peer, fact, count):
        for _ in range(count):
            self.report(peer, fact)

    @rule(chosen=st.sets(peers, min_size=1), epochs=st.integers(1, 3))
    def some_peers_earn_over_epochs(self, chosen, epochs):
        for _ in range(epochs):
            self.an_epoch_begins(1)
            for peer in sorted(chosen) * constants.EARNED_PER_EPOCH:
                self.report(peer, Fact.VERIFIED_GROUP)

    @rule(liars=st.sets(peers, min_size=1))
    def some_peers_lie(self, liars):
        for peer in sorted(liars) * 5:
            self.report(peer, Fact.FALSE_CLAIM)

    @rule(peer=peers)
    def a_peer_is_convicted(self, peer):
        for each, keys in zip(self.ledgers, (KEYS, OTHER_KEYS), strict=True):
            each.ban(Equivocation(keys[peer], 1, 1, b"evidence"))
        history = self.history(peer)
        history.state, history.since = PeerState.BANNED, self.epoch
        history.facts, history.guilt, history.banned_by_evidence = [], constants.BAN_OFFENCES, True

    @rule(later=st.sampled_from([0, 1, 2, constants.BAN_EPOCHS - 1, constants.BAN_EPOCHS, -1]))
    def an_epoch_begins(self, later):
        if later < 0 and self.settled < self.epoch:
            return  # shown below
        before, epoch = {peer: self.of(peer) for peer in self.histories}, self.epoch + later
        for each in self.ledgers:
            each.at(epoch)
        if epoch <= self.settled:
            assert {peer: self.of(peer) for peer in self.histories} == before
            return
        self.epoch = self.settled = epoch
        self.bans_end()
        self.untrusted_peers_are_promoted()
        self.strangers_are_forgotten()

    @rule(later=st.sampled_from([0, 0, 1, 2, constants.BAN_EPOCHS]))
    def the_node_starts_again(self, later):
        """Perhaps some epochs later; messages may come before its first round."""
        self.epoch += later
        self.open()

    @invariant()
    def accounts_are_what_their_histories_say(self):
        for peer, history in self.histories.items():
            account = self.of(peer)
            assert (account.state, account.since) == (self.state(peer), history.since)
            assert (account.evidence.good, account.evidence.bad) == pytest.approx(history.evidence())
            assert account.earned == history.earned()
            assert self.ledgers[0].admits(account.peer) is (self.state(peer) is not PeerState.BANNED)
        assert {account.peer for account in self.ledgers[0].accounts()} == {NAMES[n] for n in self.histories}

    @invariant()
    def a_restart_would_change_no_account(self):
        for each, database, names in zip(self.ledgers, self.databases, (NAMES, OTHER_NAMES), strict=True):
            again = Ledger(database, trusted=[names[TRUSTED]])
            assert sorted(again.accounts(), key=str) == sorted(each.accounts(), key=str)

    @invariant()
    def a_conviction_is_for_ever(self):
        for peer, history in self.histories.items():
            proof = self.ledgers[0].banned_by_evidence(NAMES[peer])
            assert proof == (b"evidence" if history.banned_by_evidence else None)
            if history.banned_by_evidence:
                assert self.of(peer).state is PeerState.BANNED

    @invariant()
    def peers_of_other_names_fare_alike(self):
        for peer in PEERS:
            one, other = self.of(peer), self.ledgers[1].of(OTHER_NAMES[peer])
            assert (one.state, one.evidence, one.earned) == (other.state, other.evidence, other.earned)

    def open(self) -> None:
        self.ledgers = [
            Ledger(database, epoch=self.epoch, trusted=[names[TRUSTED]])
            for database, names in zip(self.databases, (NAMES, OTHER_NAMES), strict=True)
        ]

    def of(self, peer: int) -> ledger.Account:
        return self.ledgers[0].of(NAMES[peer])

    def history(self, peer: int) -> History:
        return self.histories.setdefault(peer, History(PeerState.UNTRUSTED))

    def state(self, peer: int) -> PeerState:
        """What the history of a peer comes to, or the operator's word while the peer is not convicted."""
        history = self.histories[peer]
        return PeerState.HEALTHY if peer == TRUSTED and not history.banned_by_evidence else history.state

    def report(self, peer: int, fact: Fact) -> None:
        before = self.of(peer).trust
        for each, names in zip(self.ledgers, (NAMES, OTHER_NAMES), strict=True):
            each.report(names[peer], fact)
        self.history(peer).learn(fact, self.epoch)
        if fact is Fact.VERIFIED_GROUP:
            assert self.of(peer).trust >= before - 1e-12
        else:
            # Of those who are banned already so little is left to lose that a small offence may fade a larger one.
            assert self.of(peer).trust < before or self.of(peer).state is PeerState.BANNED

    def bans_end(self) -> None:
        """In probation, with what ended in the ban held against the peer, and nothing for it."""
        for peer, history in self.histories.items():
            is_served = history.state is PeerState.BANNED and self.epoch - history.since >= constants.BAN_EPOCHS
            if is_served and not history.banned_by_evidence:
                self.histories[peer] = History(PeerState.PROBATION, since=self.epoch, guilt=constants.BAN_OFFENCES)

    def untrusted_peers_are_promoted(self) -> None:
        for history in self.histories.values():
            if history.is_ready():
                history.become(PeerState.HEALTHY, self.epoch)

    def strangers_are_forgotten(self) -> None:
        """Down to the bound: untrusted peers before banned ones, then those with the fewest verified groups, and of
        these those first whose state is oldest.
        """
        known = {account.peer for account in self.ledgers[0].accounts()}
        unknown_peers = {
            peer: each for peer, each in self.histories.items() if each.is_forgettable(self.epoch) and peer != TRUSTED
        }
        gone = {peer: each for peer, each in unknown_peers.items() if NAMES[peer] not in known}
        assert len(unknown_peers) - len(gone) == min(len(unknown_peers), STRANGERS)
        for peer in set(unknown_peers) - set(gone):
            for other in gone.values():
                assert other.keeps_its_row() <= unknown_peers[peer].keeps_its_row()
        for peer in gone:
            del self.histories[peer]


def test_accounts_follow_from_what_peers_did_and_from_nothing_else(monkeypatch):
    monkeypatch.setattr(ledger, "MAX_STRANGERS", STRANGERS)
    run_state_machine_as_test(LedgerMachine, settings=settings())


def test_a_ban_before_the_first_round_lasts_its_time():
    """The network may bring messages while a node is still replaying its stored batches."""
    again = Ledger(Database(None, (ledger.SCHEMA,)), epoch=29_999)
    for _ in range(4):
        again.report("liar", Fact.FALSE_CLAIM)
    again.at(30_000)
    assert again.of("liar").state is PeerState.BANNED


def test_what_a_peer_earns_in_an_epoch_stays_capped_over_a_restart():
    database = Database(None, (ledger.SCHEMA,))
    young = Ledger(database)
    young.at(5)
    for _ in range(constants.EARNED_PER_EPOCH):
        young.report("peer", Fact.VERIFIED_GROUP)
    again = Ledger(database, epoch=5)
    again.report("peer", Fact.INVALID_MESSAGE)
    again.at(5)
    again.report("peer", Fact.VERIFIED_GROUP)
    assert again.of("peer").earned == constants.EARNED_PER_EPOCH


def test_rows_of_strangers_are_bounded_even_after_their_bans(monkeypatch):
    monkeypatch.setattr(ledger, "MAX_STRANGERS", STRANGERS)
    book = Ledger(Database(None, (ledger.SCHEMA,)))
    book.at(1)
    for name in NAMES * 4:
        book.report(name, Fact.FALSE_CLAIM)
    for epoch in (2, 1 + constants.BAN_EPOCHS, 10 + constants.BAN_EPOCHS, 10 * constants.BAN_EPOCHS):
        book.at(epoch)
    assert len(book.accounts()) <= STRANGERS


def test_keys_that_gave_one_verified_group_each_are_forgotten_before_a_peer_that_gave_two(monkeypatch):
    monkeypatch.setattr(ledger, "MAX_STRANGERS", STRANGERS)
    book = Ledger(Database(None, (ledger.SCHEMA,)))
    for name in ["honest", *NAMES, "honest"]:
        book.report(name, Fact.VERIFIED_GROUP)
    book.at(3)
    assert len(book.accounts()) == STRANGERS
    assert "honest" in {account.peer for account in book.accounts()}


def test_a_ban_ends_at_a_node_that_never_runs_over_the_end_of_an_epoch():
    """A node that is started for some minutes now and then must not ban for ever, nor promote nobody ever."""
    database = Database(None, (ledger.SCHEMA,))
    book = Ledger(database, epoch=1)
    for _ in range(4):
        book.report("liar", Fact.FALSE_CLAIM)
    for epoch in (1 + constants.BAN_EPOCHS, 10 * constants.BAN_EPOCHS):
        book = Ledger(database, epoch=epoch)
        book.at(epoch)
    assert book.admits("liar")


def test_a_clock_set_back_right_after_the_start_earns_nobody_more_than_an_epochs_share():
    database = Database(None, (ledger.SCHEMA,))
    Ledger(database, epoch=1).at(2)
    book = Ledger(database, epoch=5)
    for epoch in (4, 5):
        for _ in range(constants.EARNED_PER_EPOCH):
            book.report("peer", Fact.VERIFIED_GROUP)
        book.at(epoch)
        book.report("peer", Fact.INVALID_MESSAGE)
    assert book.of("peer").earned == constants.EARNED_PER_EPOCH
