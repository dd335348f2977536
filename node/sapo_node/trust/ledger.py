"""The trust ledger: one durable account for each peer, of facts that this node saw. No opinion of a peer enters.

- `report` enters a fact, and `state` gives the state of a peer.
- `at` begins an epoch: bans end, and untrusted peers with enough verified groups become healthy.
- A decision of the operator (`decisions`) stands above what a peer earned, for as long as the decision stands. The
  account goes on below it.
- A peer that leaves probation or a ban begins with no earned groups, as a stranger does.

`Ledger` alone writes the tables. The functions below it read them, also while a node runs in another process.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sapo_node.storage.database import Database
from sapo_node.trust import constants
from sapo_node.trust.constants import Acceptance, Evidence, Fact, PeerState, Tier
from sapo_node.trust.decisions import CONFIG, EVIDENCE, Decision, decision_of, decisions, pardons, replace_all
from sapo_node.trust.decisions import SCHEMA as DECISIONS
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import Equivocation, peer_id

logger = logging.getLogger(__name__)

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS ledger (
    peer TEXT PRIMARY KEY, standing TEXT NOT NULL, good REAL NOT NULL, bad REAL NOT NULL,
    earned INTEGER NOT NULL, earned_epoch INTEGER NOT NULL, earned_now INTEGER NOT NULL, since INTEGER NOT NULL,
    accepted REAL NOT NULL DEFAULT 0, rejected REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS ledger_standing ON ledger (standing);  -- for the page, with thousands of peers
CREATE INDEX IF NOT EXISTS ledger_bad ON ledger (bad);
CREATE TABLE IF NOT EXISTS settled (epoch INTEGER NOT NULL) STRICT;  -- the newest epoch that `at` has begun
CREATE TABLE IF NOT EXISTS evidence (peer TEXT PRIMARY KEY, message BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS offences (
    peer TEXT NOT NULL, fact TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY (peer, fact)
) STRICT;
{DECISIONS}
"""

MAX_STRANGERS = 10_000
"""Rows kept of peers that are not healthy and sent nothing in this epoch and the one before. Rows of peers with the
fewest verified groups are dropped first, and rows of banned peers last. All other rows are kept.
"""


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one peer."""

    peer: str
    state: PeerState = PeerState.UNTRUSTED
    evidence: Evidence = Evidence()
    earned: int = 0
    """Verified groups within EARNED_PER_EPOCH."""
    earned_epoch: int = 0
    earned_now: int = 0
    """Verified groups of `earned_epoch`."""
    since: int = 0
    """Epoch of the last change of state."""
    acceptance: Acceptance = Acceptance()

    decision: Decision | None = None
    """The operator's decision, if there is one. `state` is then the state that it sets."""

    @property
    def credited(self) -> int:
        """Verified groups that count towards the state healthy: `earned` times the share that filters accepted."""
        return round(self.earned * self.acceptance.share)

    @property
    def named(self) -> bool:
        """True if the operator decided `state`."""
        return self.decision is not None

    @property
    def tier(self) -> Tier:
        """The tier of the peer."""
        return Tier.of(self.state, named=self.named)

    @property
    def trust(self) -> float:
        """Between 0 and 1."""
        return self.evidence.trust

    def decided(self, decision: Decision | None) -> "Account":
        """The account under the operator's decision, if there is one."""
        return replace(self, state=decision.state, decision=decision) if decision else self

    def released(self, epoch: int) -> "Account":
        """The account once a ban has ended: on probation, with BAN_OFFENCES held against the peer."""
        offences = Evidence(bad=constants.BAN_OFFENCES)
        return Account(self.peer, PeerState.PROBATION, offences, since=epoch, acceptance=self.acceptance)


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of the state of a peer: who decided it, for what, since when and until when."""

    source: str
    """COMMAND, CONFIG or EVIDENCE."""
    why: str
    """In a few words; empty where the operator gave none."""
    since: float | None
    """Unix time in seconds. None for a peer whose state has never changed."""
    until: float | None
    """Unix time at which a ban for offences ends. None for every other state: it has no time limit."""


@dataclass(frozen=True, slots=True)
class Offence:
    """One kind of bad evidence against a peer, since this node first heard of the peer."""

    fact: Fact
    count: int
    last: float
    """Unix time of the newest."""

    def __str__(self) -> str:
        return f"{self.count} {self.fact if self.count == 1 else self.fact.plural}"


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
        """`epoch` is the current epoch. `trusted` and `banned` are the peer ids in the configuration. `now` gives Unix
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
        """The account of a peer. A peer without a row is untrusted."""
        return self._earned(peer).decided(self._decisions.get(peer))

    def _earned(self, peer: str) -> Account:
        """The account without the operator's decision."""
        return self._accounts.get(peer) or Account(peer)

    def state(self, peer: str) -> PeerState:
        """The state of a peer, without building its account: the node asks it most often, of thousands of peers."""
        decision = self._decisions.get(peer)
        if decision:
            return decision.state
        known = self._accounts.get(peer)
        return known.state if known else PeerState.UNTRUSTED

    def tier(self, peer: str) -> Tier:
        """The tier of a peer: FRIEND by the operator's decision, PROVEN by what it earned, else STRANGER."""
        return Tier.of(self.state(peer), named=peer in self._decisions)

    def accounts(self) -> tuple[Account, ...]:
        """The accounts of all known peers."""
        return tuple(map(self.of, self._accounts))

    def healthy(self) -> frozenset[str]:
        """The healthy peers, by what they earned or by the operator's decision."""
        return frozenset(peer for peer in {*self._accounts, *self._decisions} if self.state(peer) is PeerState.HEALTHY)

    def banned_by_operator(self) -> list[str]:
        """The peers that a decision of the operator bans."""
        return [peer for peer, decision in self._decisions.items() if decision.state is PeerState.BANNED]

    def admits(self, peer: str) -> bool:
        """Return whether the node exchanges messages with the peer: it is not banned."""
        return self.state(peer) is not PeerState.BANNED

    def report(self, peer: str, fact: Fact) -> Account:
        """Enter one fact that this node saw. Returns the account after it."""
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
            earned=0 if recovered else before.earned + counts,
            earned_epoch=self._epoch,
            earned_now=earned_now + counts,
            since=self._epoch if changed else before.since,
            acceptance=before.acceptance,
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
        """Enter judged groups: the peer of each, and the share, between 0 and 1, that the filters accepted of it."""
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
        """Make untrusted peers healthy, without a cap: their counted groups were drawn at random and verified."""
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


def return_to(database: Database, epoch: int) -> None:
    """Go back to an epoch, because a wrong clock made the node enter a later one. Bans that have ended stay ended."""
    database.execute("UPDATE settled SET epoch = min(epoch, ?)", epoch)
    database.execute("UPDATE ledger SET since = min(since, ?), earned_epoch = min(earned_epoch, ?)", epoch, epoch)


def account_of(database: Database, peer: str) -> Account:
    """The account of one peer, in a ledger that another process may be writing."""
    row = database.row("SELECT * FROM ledger WHERE peer = ?", peer)
    account = account_from(row) if row else Account(peer)
    if account.state is PeerState.BANNED and peer in pardons(database) and not has_equivocated(database, peer):
        account = account.released(account.since)  # the ledger has not read the pardon yet
    return account.decided(decision_of(database, peer))


def has_equivocated(database: Database, peer: str) -> bool:
    """True if there is evidence that the peer signed two contents for one round."""
    return database.row("SELECT 1 FROM evidence WHERE peer = ?", peer) is not None


def cause_of(database: Database, account: Account, begins: Callable[[int], float] | None) -> Cause:
    """Return the cause of the state of a peer. `begins` gives the Unix time of an epoch; without it, times are None."""
    decision = account.decision
    if decision and decision.source != EVIDENCE:
        return Cause(decision.source, decision.why, decision.since or None, None)
    since = begins(account.since) if begins and account.since else None
    if has_equivocated(database, account.peer):
        return Cause(EVIDENCE, "signed two contents for one round", since, None)
    if account.state is PeerState.HEALTHY:
        return Cause(EVIDENCE, f"has the {constants.HEALTHY_AFTER} verified groups that healthy takes", since, None)
    if account.state is PeerState.UNTRUSTED:
        why = f"has {account.credited} of the {constants.HEALTHY_AFTER} verified groups that healthy takes"
        return Cause(EVIDENCE, why, since, None)
    until = begins(account.since + constants.BAN_EPOCHS) if begins and account.state is PeerState.BANNED else None
    return Cause(EVIDENCE, ", ".join(map(str, offences_of(database, account.peer))), since, until)


def offences_of(database: Database, peer: str) -> list[Offence]:
    """All bad evidence against a peer, the newest kind first."""
    rows = database.rows("SELECT fact, count, last FROM offences WHERE peer = ? ORDER BY last DESC, fact", peer)
    return [Offence(Fact(fact), count, last) for fact, count, last in rows]


def states(database: Database) -> dict[str, int]:
    """The number of known peers, by state."""
    known: Counter[PeerState] = Counter()
    for state, count in database.rows("SELECT standing, count(*) FROM ledger GROUP BY standing"):
        known[PeerState(state)] += count
    for peer, decision in decisions(database).items():
        known[decision.state] += 1
        if row := database.row("SELECT standing FROM ledger WHERE peer = ?", peer):
            known[PeerState(row[0])] -= 1
    return {state.value: count for state, count in sorted(known.items()) if count}


def account_from(row: tuple[Any, ...]) -> Account:
    """The account in a row of the table `ledger`."""
    peer, state, good, bad, earned, earned_epoch, earned_now, since, accepted, rejected = row
    return Account(
        peer,
        PeerState(state),
        Evidence(good, bad),
        earned=earned,
        earned_epoch=earned_epoch,
        earned_now=earned_now,
        since=since,
        acceptance=Acceptance(accepted, rejected),
    )
