"""The record of steps that were taken back: each decision, its reason and its progress.

A step is taken back by restoring the checkpoint before it and replaying the stored batches without the accused groups.
The weights are then bit for bit those of a node that never trained on these groups. `trainer.Trainer` does this; the
record lets it go on after a crash. Each of three transactions moves a row on:

    begun     the row names the accused groups and the step to restore; nothing else has changed yet
    restored  the learner stands at that step, and the stored batches no longer hold the accused groups
    finished  the batches are replayed

If the learner cannot restore the step, the row fails: batches, counts and weights stay as they were.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields

from sapo_node.storage.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS taken_back (
    number INTEGER PRIMARY KEY, restored INTEGER NOT NULL, replayed INTEGER NOT NULL, reason TEXT NOT NULL,
    phrase TEXT NOT NULL, groups INTEGER NOT NULL, peers INTEGER NOT NULL, at REAL NOT NULL, seconds REAL,
    failure TEXT NOT NULL,
    accused TEXT -- null once the stored batches no longer hold the accused groups
) STRICT;
"""

MAX_ROWS = 64
PHRASE_CHARACTERS = 80
TAKEN_BACK = "taken back"
"""The reason of a group that was taken back; `TakenBack.why` adds the alarm."""

Accused = frozenset[tuple[int, str]]
"""External groups, by their step and their id in the batch of that step."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Steps that were taken back, are being taken back, or could not be."""

    number: int
    restored: int
    """The step that was restored; 0 for the weights before the first step."""
    replayed: int
    """The last step that was replayed."""
    reason: str
    phrase: str
    """The phrase that the accused texts share; empty if there is none."""
    groups: int
    peers: int
    at: float
    """Unix time of the decision."""
    seconds: float | None
    """Seconds of restoring and replaying since the last start of the node; None until it is finished."""
    failure: str
    """The error that kept the steps from being taken back; empty if there is none."""

    @property
    def cause(self) -> str:
        """The reason, with the phrase if there is one."""
        return f"{self.reason} {self.phrase!r}" if self.phrase else self.reason

    @property
    def why(self) -> str:
        """The reason that the book stores for the accused groups."""
        return f"{TAKEN_BACK}: {self.cause}"

    def __str__(self) -> str:
        what = f"{_count(self.groups, 'group')} of {_count(self.peers, 'peer')}"
        if self.failure:
            return f"could not take back {what} ({self.cause}): {self.failure}; the weights stay as they are"
        did = "taking" if self.seconds is None else "took"
        replay = "" if self.seconds is None else f"; replayed {self._rounds} in {self.seconds:.1f} s"
        return f"{did} back {what} since round {self.restored}: {self.cause}{replay}"

    @property
    def _rounds(self) -> str:
        return _count(self.replayed - self.restored, "round")


_COLUMNS = ", ".join(each.name for each in fields(TakenBack))


class TakeBacks:
    """Writes the record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self,
        peers: Mapping[tuple[int, str], str],
        *,
        restored: int,
        replayed: int,
        reason: str,
        phrase: str,
        at: float,
    ) -> None:
        """Decide to take steps back; `peers` gives the peer of each accused group.

        The decision is durable, because the learner then removes files for good.
        """
        with self._database.transaction(durable=True):
            self._database.execute(
                "INSERT INTO taken_back (restored, replayed, reason, phrase, groups, peers, at, failure, accused) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, '', ?)",
                *(restored, replayed, reason, phrase[:PHRASE_CHARACTERS], len(peers), len(set(peers.values())), at),
                json.dumps(sorted(peers)),
            )
            self._database.execute(
                "DELETE FROM taken_back WHERE number <= (SELECT max(number) FROM taken_back) - ?", MAX_ROWS
            )

    def unfinished(self) -> list[TakenBack]:
        """Return the decisions that are neither finished nor failed, oldest first."""
        return _read(self._database, "WHERE seconds IS NULL AND failure = '' ORDER BY number")

    def accused(self, taken: TakenBack) -> Accused:
        """The accused groups; none once the stored batches no longer hold them."""
        [(accused,)] = self._database.rows("SELECT accused FROM taken_back WHERE number = ?", taken.number)
        with self._database.decoding():
            return frozenset((int(step), str(group)) for step, group in json.loads(accused or "[]"))

    def restored(self, taken: TakenBack) -> None:
        """Note that the learner stands at the restored step. Call this in the transaction that rewrites the batches."""
        self._database.execute("UPDATE taken_back SET accused = NULL WHERE number = ?", taken.number)

    def finished(self, taken: TakenBack, seconds: float) -> TakenBack:
        """Note that the batches are replayed."""
        return self._end(taken, "seconds = ?", round(seconds, 3))

    def failed(self, taken: TakenBack, failure: str) -> TakenBack:
        """Note that the learner cannot restore the step."""
        return self._end(taken, "accused = NULL, failure = ?", failure)

    def newest(self) -> TakenBack:
        """The row that was begun last."""
        return taken_back(self._database, last=1)[0]

    def _end(self, taken: TakenBack, column: str, value: float | str) -> TakenBack:
        self._database.execute(f"UPDATE taken_back SET {column} WHERE number = ?", value, taken.number)  # noqa: S608 - ours
        [ended] = _read(self._database, "WHERE number = ?", taken.number)
        return ended


def taken_back(database: Database, *, last: int = MAX_ROWS) -> list[TakenBack]:
    """Return the steps that were taken back, newest first."""
    return _read(database, "ORDER BY number DESC LIMIT ?", last)


def _read(database: Database, condition: str, *values: object) -> list[TakenBack]:
    rows = database.rows(f"SELECT {_COLUMNS} FROM taken_back {condition}", *values)  # noqa: S608 - ours
    return [TakenBack(*row) for row in rows]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
