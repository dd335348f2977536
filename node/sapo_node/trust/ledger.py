"""The trust ledger: durable, first-hand, keyed by peer. Facts go in, peer states come out. No opinion of a
peer ever enters.

The operator's decisions stand above what a peer earned (`decisions`): a trusted peer is healthy and a banned peer is
banned, for exactly as long as the decision stands. What the peer earns meanwhile is kept, and counts again afterwards.

`at(epoch)` first: call it when an epoch begins, so that bans end and untrusted peers who have earned it are promoted.
A peer that leaves probation or a ban has earned nothing: it becomes healthy as a stranger does, and not before.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.accounts import Account, Offence, account_from, offences_of
from sapo_node.trust.constants import Evidence, Fact, PeerState, Tier
from sapo_node.trust.decisions import CONFIG, EVIDENCE, Decision, decisions, pardons, replace_all
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import Equivocation, peer_id

logger = logging.getLogger(__name__)

MAX_STRANGERS = 10_000
"""Rows kept of peers that are not healthy and sent nothing in this epoch and the one before. Rows of peers with the
fewest verified groups are dropped first, and rows of banned peers last. All other rows are kept.
"""


class Ledger:
    """Trust per peer id."""

    def __init__(
        self,
        database: Database,
        *,
        epoch: int = 0,
        trusted: Iterable[str] = (),
        banned: Iterable[str] = (),
        now: Callable[[], float] = time.time,
        limits: Limits = LIMITS,
    ) -> None:
        """`epoch` is the one that runs. `trusted` and `banned` are the peer ids in the configuration. `now` gives Unix
        time.
        """
        self._database = database
        self._now = now
        self._limits = limits
        self._epoch = epoch
        self._decisions: dict[str, Decision] = {}
        self._version: int | None = None
        """SQLite's number for the changes that other connections have made to the database."""
        with database.decoding():
            accounts = map(account_from, database.rows("SELECT * FROM ledger"))
            self._accounts = {account.peer: account for account in accounts}
        row = database.row("SELECT epoch FROM settled")
        heard = (max(account.earned_epoch, account.since) for account in self.accounts())
        self._settled: int = row[0] if row else max(heard, default=epoch)
        named = [(peer, PeerState.HEALTHY) for peer in trusted] + [(peer, PeerState.BANNED) for peer in banned]
        replace_all(database, CONFIG, [Decision(peer, state, CONFIG, self._now()) for peer, state in named])
        self.refresh()

    def refresh(self) -> list[str]:
        """Take over what commands decided since the last call. Returns the peers that are banned since then.

        Call it every second: it costs next to nothing while no other process has written.
        """
        row = self._database.row("PRAGMA data_version")
        if row and row[0] == self._version:
            return []
        self._version = row[0] if row else None
        before, banned = self._decisions, {*self.banned_by_operator()}
        with self._database.transaction():
            self._decisions = decisions(self._database)
            for peer in pardons(self._database):
                if self._earned(peer).state is PeerState.BANNED and not self.banned_by_evidence(peer):
                    self._write(self._earned(peer).released(self._epoch))
            self._database.execute("DELETE FROM pardons")
        for peer in self._decisions.keys() - before.keys():
            if self._decisions[peer].source == EVIDENCE:
                logger.error("%s is trusted, and stays banned: it signed two contents for one round", peer)
        return sorted({*self.banned_by_operator()} - banned)

    def of(self, peer: str) -> Account:
        """The account of a peer, that of an untrusted peer if the node never heard of it."""
        return self._earned(peer).decided(self._decisions.get(peer))

    def _earned(self, peer: str) -> Account:
        """The account without the operator's decision."""
        return self._accounts.get(peer) or Account(peer)

    def state(self, peer: str) -> PeerState:
        """The state of a peer: what is asked most often, of peers by the thousand."""
        decision = self._decisions.get(peer)
        if decision:
            return decision.state
        known = self._accounts.get(peer)
        return known.state if known else PeerState.UNTRUSTED

    def tier(self, peer: str) -> Tier:
        """The tier of a peer: FRIEND by the operator's decision, PROVEN by what it earned, else STRANGER."""
        return Tier.of(self.state(peer), named=peer in self._decisions)

    def accounts(self) -> tuple[Account, ...]:
        """All peers of whom anything is known."""
        return tuple(map(self.of, self._accounts))

    def healthy(self) -> frozenset[str]:
        """The healthy peers, by what they earned or by the operator's decision."""
        return frozenset(peer for peer in {*self._accounts, *self._decisions} if self.state(peer) is PeerState.HEALTHY)

    def banned_by_operator(self) -> list[str]:
        """The peers that a decision of the operator bans."""
        return [peer for peer, decision in self._decisions.items() if decision.state is PeerState.BANNED]

    def admits(self, peer: str) -> bool:
        """Whether this node deals with the peer at all."""
        return self.state(peer) is not PeerState.BANNED

    def report(self, peer: str, fact: Fact) -> Account:
        """Enter one fact that this node saw first-hand; the account after it."""
        before = self._earned(peer)
        evidence = before.evidence.after(fact, self._limits.offence)
        earned_now = before.earned_now if before.earned_epoch == self._epoch else 0
        counts = fact is Fact.VERIFIED_GROUP and earned_now < self._limits.earned_per_epoch
        state = constants.state_after(before.state, evidence)
        changed = state is not before.state
        recovered = changed and state is PeerState.UNTRUSTED
        account = Account(
            peer,
            state,
            evidence,
            0 if recovered else before.earned + counts,
            self._epoch,
            earned_now + counts,
            self._epoch if changed else before.since,
            before.acceptance,
        )
        with self._database.transaction():
            self._write(account)
            if fact in constants.OFFENCE:
                self._database.execute(
                    "INSERT INTO offences VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE SET "
                    "count = count + 1, last = excluded.last",
                    *(peer, fact, self._now()),
                )
        if changed and state is PeerState.BANNED and self.state(peer) is PeerState.HEALTHY:
            logger.error("%s would be banned for what it did, were it not trusted by the operator", peer)
        return self.of(peer)

    def judged(self, groups: Iterable[tuple[str, float]]) -> None:
        """Enter what filters left of verified groups: of each the peer, and the accepted share between 0 and 1."""
        with self._database.transaction():
            for peer, accepted in groups:
                before = self._earned(peer)
                self._write(replace(before, acceptance=before.acceptance.after(accepted)))

    def offences(self, peer: str) -> list[Offence]:
        """All bad evidence against a peer, the newest kind first."""
        return offences_of(self._database, peer)

    def ban(self, proof: Equivocation) -> Account:
        """Ban an issuer for good; the evidence is kept."""
        peer = peer_id(proof.issuer)
        guilty = Evidence(bad=constants.BAN_OFFENCES)
        account = replace(self._earned(peer), state=PeerState.BANNED, evidence=guilty, since=self._epoch)
        with self._database.transaction():
            self._write(account)
            self._database.execute("INSERT OR IGNORE INTO evidence VALUES (?, ?)", peer, proof.evidence)
        if peer in self._decisions:
            self._decisions[peer] = self._decisions[peer].overruled()
        return self.of(peer)

    def banned_by_evidence(self, peer: str) -> bytes | None:
        """The evidence message against an equivocator, if there is any."""
        row = self._database.row("SELECT message FROM evidence WHERE peer = ?", peer)
        return row[0] if row else None

    def at(self, epoch: int) -> None:
        """Enter an epoch: end bans whose time has passed, promote peers that have earned it, drop empty rows."""
        if epoch <= self._settled:
            return
        self._epoch = self._settled = epoch = max(epoch, self._epoch)
        with self._database.transaction():
            self._database.execute("DELETE FROM settled")
            self._database.execute("INSERT INTO settled VALUES (?)", epoch)
            self._release()
            self._promote()
            self._forget_unknown()

    def _release(self) -> None:
        for account in tuple(self._accounts.values()):
            served = account.state is PeerState.BANNED and self._epoch - account.since >= constants.BAN_EPOCHS
            if served and self.banned_by_evidence(account.peer) is None:
                self._write(account.released(self._epoch))

    def _promote(self) -> None:
        """No ration: each group that counts was drawn by lottery and verified, and is not one that filters reject."""
        for account in tuple(self._accounts.values()):
            earned = account.credited >= constants.HEALTHY_AFTER and account.trust >= constants.RECOVERED_TRUST
            if earned and account.state is PeerState.UNTRUSTED:
                self._write(replace(account, state=PeerState.HEALTHY, since=self._epoch))

    def _forget_unknown(self) -> None:
        unknown_peers = [
            account
            for account in self.accounts()
            if account.earned_epoch < self._epoch - 1 and account.state is not PeerState.HEALTHY and not account.named
        ]
        unknown_peers.sort(key=lambda each: (each.state is PeerState.BANNED, each.earned, each.since))
        for account in unknown_peers[: max(0, len(unknown_peers) - MAX_STRANGERS)]:
            del self._accounts[account.peer]
            self._database.execute("DELETE FROM ledger WHERE peer = ?", account.peer)
            self._database.execute("DELETE FROM evidence WHERE peer = ?", account.peer)
            self._database.execute("DELETE FROM offences WHERE peer = ?", account.peer)

    def _write(self, account: Account) -> None:
        self._accounts[account.peer] = account
        self._database.execute(
            "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            account.peer,
            account.state,
            account.evidence.good,
            account.evidence.bad,
            account.earned,
            account.earned_epoch,
            account.earned_now,
            account.since,
            account.acceptance.accepted,
            account.acceptance.rejected,
        )
