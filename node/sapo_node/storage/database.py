"""The node's durable state: one SQLite file in WAL mode, opened by one process.

Each part of the node owns its tables: its module defines them in a `SCHEMA` string, and `Database` creates them. A
transaction commits or raises StateError. A killed process loses nothing that was committed. A transaction with
`durable=True` (counters) also survives a power cut.

All tables are STRICT: SQLite stores no value of another type than that of its column. `Database` runs `quick_check`
when it opens the file, which finds most damage of a disk, also in types.
"""

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sapo_protocol import LocalError, RemoteError

SCHEMA_VERSION = 6
"""Version of the tables. The node refuses a state with other tables."""
MAX_VALUE_BYTES = 2**26
"""Bytes of one value, at most. JSON takes up to 22 times its size when it is read, and SQLite would take 1 GB of it."""

_FAILURES = (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError, OverflowError)
"""Errors of the sqlite3 module. It raises the last two if a damaged file holds text that is not UTF-8, or a huge
number.
"""

_MISREAD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RemoteError)
"""Errors of code that makes values of rows. RemoteError is that of a stored message that does not decode."""

_MACHINE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""Result codes for a problem of the machine: disk, memory, locks or permissions. Every other code means that the file
is damaged.
"""


class StateError(LocalError):
    """The state database cannot be read or written."""


class Database:
    """A connection that raises every SQLite failure as a StateError of one line."""

    def __init__(self, path: Path | None, schema: tuple[str, ...], *, read_only: bool = False) -> None:
        """Open or create the database at `path` (in memory for None) with the tables of `schema`.

        Raises StateError if `path` is not a database of this version, or is damaged. With `read_only`, the file must
        exist.
        """
        self._where = str(path) if path else "in memory"
        if path:
            _require_file(path, may_be_missing=not read_only)
        with self._errors():
            if path and read_only:
                self._connection = sqlite3.connect(read_only_uri(path), uri=True, isolation_level=None)
            else:
                self._connection = sqlite3.connect(path or ":memory:", isolation_level=None)
        try:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            with self._errors():
                version = self._require_version(may_be_empty=not read_only)
                self._require_integrity("quick_check")
                if not read_only:
                    self._create(schema, is_new=version == 0)
        except StateError:
            self._connection.close()
            raise

    def _require_version(self, *, may_be_empty: bool) -> int:
        """Return the version of the schema, 0 for an empty database.

        Raises StateError for a database of another program, or of another version of this one.
        """
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (definitions,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and (definitions or not may_be_empty):
            raise StateError(f"{self._where} is not a database of sapo-node: move it away, or choose another --state")
        if version not in (0, SCHEMA_VERSION):
            raise StateError(
                f"{self._where} was written by another version of sapo-node (schema {version}); use the version that "
                f"wrote it, or another --state"
            )
        return int(version)

    def _require_integrity(self, check: str) -> None:
        if self._connection.execute(f"PRAGMA {check}(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("integrity check failed")

    def _create(self, schema: tuple[str, ...], *, is_new: bool) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if is_new:  # before the tables, so that a database whose creation was interrupted is recognised
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")
        for statements in schema:
            self._connection.executescript(statements)

    def check(self) -> None:
        """Read the whole database. Raises StateError if any part is damaged."""
        with self._errors():
            self._require_integrity("integrity_check")

    @contextmanager
    def _errors(self, kinds: tuple[type[Exception], ...] = _FAILURES) -> Iterator[None]:
        try:
            yield
        except kinds as error:
            raise self._state_error(error) from error

    def _state_error(self, error: Exception) -> StateError:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _MACHINE:  # the low byte is the primary result code
            return StateError(f"state database {self._where}: {error}; free disk space or check its permissions")
        return self._damaged(error)

    def _damaged(self, error: Exception) -> StateError:
        return StateError(
            f"state database {self._where} is damaged ({error}); restore it from a backup, or move its folder away "
            f"to start with an empty state"
        )

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All writes inside commit together or not at all. A nested transaction joins the outer one."""
        if self._connection.in_transaction:
            yield
            return
        with self._errors((sqlite3.Error,)):  # other errors come from the caller's code inside
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
        """Run one statement and return the number of rows that it changed."""
        try:
            return self._connection.execute(statement, values).rowcount
        except _FAILURES as error:
            raise self._state_error(error) from error

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            return self._connection.execute(query, values).fetchall()
        except _FAILURES as error:
            raise self._state_error(error) from error

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        rows = self.rows(query, *values)
        return rows[0] if rows else None

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Within this context rows become values. Raises StateError if a row holds something else than it should."""
        with self._errors(_MISREAD):
            yield

    def documents(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a query for one column of JSON objects. Raises StateError if a row is not a JSON object."""
        return [self._document(text) for (text,) in self.rows(query, *values)]

    def _document(self, text: Any) -> dict[str, Any]:
        with self.decoding():
            value = json.loads(text)
            if not isinstance(value, dict):
                raise TypeError("a row holds no JSON object")
            return value

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def read_only_uri(path: Path) -> str:
    """The address by which SQLite opens a database for reading, while another process may write to it.

    To read a database in WAL mode SQLite creates a file beside it. In a folder where nothing can be created, SQLite
    must be told that nobody writes. That holds if there is no log of a writer.
    """
    is_at_rest = not os.path.lexists(f"{path}-wal") and not os.access(path.parent, os.W_OK)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_at_rest else ''}"


def _require_file(path: Path, *, may_be_missing: bool) -> None:
    """Raise StateError for a folder, for a link, which may lead to a file of another program, and for a pipe, on which
    SQLite would wait for ever. SQLite itself follows no link to the files beside its database.

    Does not open the file: closing it would release the locks that SQLite may hold on it in this process.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError as error:
        if may_be_missing:
            return
        raise StateError(
            f"there is no state database {path}: this key has not been started in this swarm yet (sapo-node start)"
        ) from error
    except OSError as error:
        raise StateError(f"cannot read the state database {path}: {error.strerror}; choose another --state") from error
    if not stat.S_ISREG(mode):
        kind = "is a link" if stat.S_ISLNK(mode) else "is not a file"
        raise StateError(f"{path} {kind}, so not a state database: move it away, or choose another --state")
