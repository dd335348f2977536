"""What the ledger stores: one account for each peer, the bad evidence against it, and the operator's word.

The functions read the database of a node that may be running in another process. `Ledger` alone writes it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from sapo_node.storage.database import Database
from sapo_node.trust.constants import Evidence, Fact, PeerState, Tier

SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
    peer TEXT PRIMARY KEY, standing TEXT NOT NULL, good REAL NOT NULL, bad REAL NOT NULL,
    earned INTEGER NOT NULL, earned_epoch INTEGER NOT NULL, earned_now INTEGER NOT NULL, since INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_standing ON ledger (standing);  -- for who looks: peers are many
CREATE INDEX IF NOT EXISTS ledger_bad ON ledger (bad);
CREATE TABLE IF NOT EXISTS settled (epoch INTEGER NOT NULL);  -- for which all that is due in an epoch was done
CREATE TABLE IF NOT EXISTS evidence (peer TEXT PRIMARY KEY, message BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS named (peer TEXT PRIMARY KEY, standing TEXT NOT NULL);  -- by the operator, at the last start
CREATE TABLE IF NOT EXISTS offences (
    peer TEXT NOT NULL, fact TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY (peer, fact)
);
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
    """Verified groups that counted towards the state healthy."""
    earned_epoch: int = 0
    earned_now: int = 0
    """Those of `earned_epoch`."""
    since: int = 0
    """Epoch of the last change of state."""

    named: bool = False
    """Whether `state` is the operator's word."""

    @property
    def tier(self) -> Tier:
        """How the node came to know the peer."""
        return Tier.of(self.state, named=self.named)

    @property
    def trust(self) -> float:
        """Between 0 and 1."""
        return self.evidence.trust


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
    named = database.row("SELECT standing FROM named WHERE peer = ?", peer)
    return replace(account, state=PeerState(named[0]), named=True) if named else account


def offences_of(database: Database, peer: str) -> list[Offence]:
    """All bad evidence against a peer, the newest kind first."""
    rows = database.rows("SELECT fact, count, last FROM offences WHERE peer = ? ORDER BY last DESC, fact", peer)
    return [Offence(Fact(fact), count, last) for fact, count, last in rows]


def states(database: Database) -> dict[str, int]:
    """How many peers are known, by state."""
    earned: Counter[PeerState] = Counter()
    for state, count in database.rows("SELECT standing, count(*) FROM ledger GROUP BY standing"):
        earned[PeerState(state)] += count
    for state, stored in database.rows(
        "SELECT named.standing, ledger.standing FROM named LEFT JOIN ledger USING (peer)"
    ):
        earned[PeerState(state)] += 1
        if stored is not None:
            earned[PeerState(stored)] -= 1
    return {state.value: count for state, count in sorted(earned.items()) if count}


def account_from(row: tuple[Any, ...]) -> Account:
    """The account in a row of the table `ledger`."""
    peer, state, good, bad, earned, earned_epoch, earned_now, since = row
    return Account(peer, PeerState(state), Evidence(good, bad), earned, earned_epoch, earned_now, since)
