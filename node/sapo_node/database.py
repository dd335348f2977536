"""The node's durable memory: one SQLite file in WAL mode, opened by one process.

Each part of the node owns its tables and creates them here through `SCHEMA` strings of its own module. A transaction
either happens or raises StateError; a killed process loses nothing that was committed. What must survive a power cut
as well (counters) is committed with `durable=True`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sapo_protocol import LocalError

SCHEMA_VERSION = 2


class StateError(LocalError):
    """The state database cannot be read or written."""


class Database:
    """A connection that turns every SQLite failure into one StateError line."""

    def __init__(self, path: Path | None, schema: tuple[str, ...], *, read_only: bool = False) -> None:
        """Open or create the database at `path` (in memory for None) with the tables of `schema`."""
        self._where = str(path) if path else "in memory"
        with self._errors():
            if read_only:
                self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
            else:
                self._connection = sqlite3.connect(path or ":memory:", isolation_level=None)
                self._create(schema)

    def _create(self, schema: tuple[str, ...]) -> None:
        run = self._connection.execute
        if run("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("integrity check failed")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        (version,) = run("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA_VERSION):
            raise StateError(
                f"{self._where} was written by another version of sapo-node (schema {version}); use the version that "
                f"wrote it, or another --state"
            )
        for statements in schema:
            self._connection.executescript(statements)
        run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._state_error(error) from error

    def _state_error(self, error: sqlite3.DatabaseError) -> StateError:
        if "no such table" in str(error):
            return StateError(
                f"state database {self._where} is from an older version ({error}): start the node once with this one, "
                f"which adds what is missing"
            )
        if isinstance(error, sqlite3.OperationalError):
            return StateError(f"state database {self._where}: {error}; free disk space or check its permissions")
        return StateError(
            f"state database {self._where} is damaged ({error}); restore it from a backup, or move its folder away "
            f"to begin anew"
        )

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All writes inside commit together or not at all; nested use joins the outer transaction."""
        if self._connection.in_transaction:
            yield
            return
        with self._errors():
            if durable:
                self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if durable:
                    self._connection.execute("PRAGMA synchronous = NORMAL")

    def execute(self, statement: str, *values: Any) -> int:
        """Run one statement; the number of rows it changed."""
        try:
            return self._connection.execute(statement, values).rowcount
        except sqlite3.DatabaseError as error:
            raise self._state_error(error) from error

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._state_error(error) from error

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        rows = self.rows(query, *values)
        return rows[0] if rows else None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
