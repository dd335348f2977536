"""What the ledger stores: one account for each peer, the bad evidence against it, and the operator's decisions.

The functions read the database of a node that may be running in another process. `Ledger` alone writes it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sapo_node.storage.database import Database
from sapo_node.trust import constants, decisions
from sapo_node.trust.constants import Acceptance, Evidence, Fact, PeerState, Tier
from sapo_node.trust.decisions import EVIDENCE, Decision, decision_of, pardons

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS ledger (
    peer TEXT PRIMARY KEY, standing TEXT NOT NULL, good REAL NOT NULL, bad REAL NOT NULL,
    earned INTEGER NOT NULL, earned_epoch INTEGER NOT NULL, earned_now INTEGER NOT NULL, since INTEGER NOT NULL,
    accepted REAL NOT NULL DEFAULT 0, rejected REAL NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS ledger_standing ON ledger (standing);  -- for who looks: peers are many
CREATE INDEX IF NOT EXISTS ledger_bad ON ledger (bad);
CREATE TABLE IF NOT EXISTS settled (epoch INTEGER NOT NULL);  -- for which all that is due in an epoch was done
CREATE TABLE IF NOT EXISTS evidence (peer TEXT PRIMARY KEY, message BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS offences (
    peer TEXT NOT NULL, fact TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY (peer, fact)
);
{decisions.SCHEMA}
"""


def return_to(database: Database, epoch: int) -> None:
    """Go back to an epoch, because a wrong clock made the node enter a later one. Bans that have ended stay ended."""
    database.execute("UPDATE settled SET epoch = min(epoch, ?)", epoch)
    database.execute("UPDATE ledger SET since = min(since, ?), earned_epoch = min(earned_epoch, ?)", epoch, epoch)


@dataclass(frozen=True, slots=True)
class Account:
    """What the ledger holds of one peer."""

    peer: str
    state: PeerState = PeerState.UNTRUSTED
    evidence: Evidence = Evidence()
    earned: int = 0
    """Verified groups within EARNED_PER_EPOCH."""
    earned_epoch: int = 0
    earned_now: int = 0
    """Those of `earned_epoch`."""
    since: int = 0
    """Epoch of the last change of state."""
    acceptance: Acceptance = Acceptance()

    decision: Decision | None = None
    """The operator's decision, which `state` is where there is one."""

    @property
    def credited(self) -> int:
        """Verified groups that count towards the state healthy, without the share that filters reject."""
        return round(self.earned * self.acceptance.share)

    @property
    def named(self) -> bool:
        """Whether the operator decided `state`."""
        return self.decision is not None

    @property
    def tier(self) -> Tier:
        """How the node came to know the peer."""
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
    """Why a peer has its state: who decided it, for what, since when and until when."""

    source: str
    """COMMAND, CONFIG, EVIDENCE, or the peer id of the signer of a list."""
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


def account_of(database: Database, peer: str) -> Account:
    """What a ledger that may be another process's holds of one peer."""
    row = database.row("SELECT * FROM ledger WHERE peer = ?", peer)
    account = account_from(row) if row else Account(peer)
    if account.state is PeerState.BANNED and peer in pardons(database) and not has_equivocated(database, peer):
        account = account.released(account.since)  # the ledger has not read the pardon yet
    return account.decided(decision_of(database, peer))


def has_equivocated(database: Database, peer: str) -> bool:
    """Whether there is evidence that the peer signed two contents for one round."""
    return database.row("SELECT 1 FROM evidence WHERE peer = ?", peer) is not None


def cause_of(database: Database, account: Account, begins: Callable[[int], float] | None) -> Cause:
    """Why a peer has its state. `begins` gives the Unix time at which an epoch begins; without it times are None."""
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
    """How many peers are known, by state."""
    known: Counter[PeerState] = Counter()
    for state, count in database.rows("SELECT standing, count(*) FROM ledger GROUP BY standing"):
        known[PeerState(state)] += count
    for peer, decision in decisions.decisions(database).items():
        known[decision.state] += 1
        if row := database.row("SELECT standing FROM ledger WHERE peer = ?", peer):
            known[PeerState(row[0])] -= 1
    return {state.value: count for state, count in sorted(known.items()) if count}


def account_from(row: tuple[Any, ...]) -> Account:
    """The account in a row of the table `ledger`."""
    peer, state, good, bad, earned, earned_epoch, earned_now, since, accepted, rejected = row
    evidence, acceptance = Evidence(good, bad), Acceptance(accepted, rejected)
    return Account(peer, PeerState(state), evidence, earned, earned_epoch, earned_now, since, acceptance)
