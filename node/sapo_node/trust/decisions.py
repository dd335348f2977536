"""The operator's decisions about peers, by a command or in the configuration.

- A decision holds over restarts, whatever the peer earns, until the operator takes it back.
- A ban stands above a trust, and a command above the configuration.
- Evidence of equivocation stands above a trust: a peer that signed two contents for one round stays banned.

The functions read and write the database of a node that may be running in another process. The ledger of that node
reads the decisions again (`Ledger.refresh`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sapo_node.storage.database import Database
from sapo_node.trust.constants import PeerState

SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    peer TEXT NOT NULL, source TEXT NOT NULL, standing TEXT NOT NULL, since REAL NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (peer, source)
) STRICT;
CREATE TABLE IF NOT EXISTS pardons (peer TEXT PRIMARY KEY) STRICT;
"""

COMMAND, CONFIG, EVIDENCE = "command", "config", "evidence"
"""The sources of a peer's state."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The operator trusts or bans a peer."""

    peer: str
    state: PeerState
    """HEALTHY or BANNED."""
    source: str
    """COMMAND or CONFIG; EVIDENCE for a trust that evidence of equivocation overrules."""
    since: float = 0.0
    """Unix time in seconds."""
    why: str = ""
    """The operator's own words; may be empty."""

    def overruled(self) -> "Decision":
        """The decision about a peer that signed two contents for one round."""
        return self if self.state is PeerState.BANNED else replace(self, state=PeerState.BANNED, source=EVIDENCE)


def decisions(database: Database) -> dict[str, Decision]:
    """The decision that holds for each peer that the operator trusted or banned."""
    guilty = {peer for (peer,) in database.rows("SELECT peer FROM evidence")}
    holding = _holding(_rows(database))
    return {peer: each.overruled() if peer in guilty else each for peer, each in holding.items()}


def decision_of(database: Database, peer: str, *, besides: str = "") -> Decision | None:
    """The decision that holds for one peer, or that would hold without the source `besides`."""
    holding = _holding(each for each in _rows(database, "WHERE peer = ?", peer) if each.source != besides).get(peer)
    is_guilty = holding and database.row("SELECT 1 FROM evidence WHERE peer = ?", peer)
    return holding.overruled() if holding and is_guilty else holding


def decided_by(database: Database, source: str) -> list[Decision]:
    """The decisions of one source."""
    return _rows(database, "WHERE source = ?", source)


def decide(database: Database, decision: Decision) -> None:
    """Store a decision in place of the earlier one of the same source."""
    database.execute(
        "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?)",
        *(decision.peer, decision.source, decision.state, decision.since, decision.why),
    )


def take_back(database: Database, peer: str, source: str) -> bool:
    """Remove the decision of a source about a peer. Returns whether there was one."""
    return bool(database.execute("DELETE FROM decisions WHERE peer = ? AND source = ?", peer, source))


def replace_all(database: Database, source: str, made: Iterable[Decision]) -> None:
    """Store all decisions of a source. A decision that repeats an earlier one keeps the time of the earlier one."""
    with database.transaction():
        since = {(each.peer, each.state): each.since for each in decided_by(database, source)}
        database.execute("DELETE FROM decisions WHERE source = ?", source)
        for each in made:
            decide(database, replace(each, since=since.get((each.peer, each.state), each.since)))


def pardon(database: Database, peer: str) -> None:
    """End a ban for offences when the ledger next reads the decisions, as if its time had passed."""
    database.execute("INSERT OR IGNORE INTO pardons VALUES (?)", peer)


def pardons(database: Database) -> list[str]:
    """The peers whose ban the ledger is to end."""
    return [peer for (peer,) in database.rows("SELECT peer FROM pardons")]


def _holding(made: Iterable[Decision]) -> dict[str, Decision]:
    """The strongest decision about each peer."""
    holding: dict[str, Decision] = {}
    for each in made:
        holding[each.peer] = min(holding.get(each.peer, each), each, key=_rank)
    return holding


def _rank(decision: Decision) -> tuple[bool, bool]:
    """A ban before a trust; then a command before the configuration."""
    return decision.state is not PeerState.BANNED, decision.source != COMMAND


def _rows(database: Database, condition: str = "", *values: str) -> list[Decision]:
    rows = database.rows(f"SELECT peer, standing, source, since, why FROM decisions {condition}", *values)  # noqa: S608 - ours
    with database.decoding():
        return [Decision(peer, PeerState(state), *rest) for peer, state, *rest in rows]
