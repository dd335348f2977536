"""The grammar of the tables and indexes that a state database may hold.

A database can hold code: triggers, views, generated columns, checks and expressions in indexes. SQLite runs it when the
node reads or writes. A view may never end, and an expression may fill the memory. So a node opens only a database in
which each definition fits this grammar, which has no expressions:

    CREATE TABLE counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL)
    CREATE INDEX pool_age ON pool (epoch, counter, k)
"""

import re

MAX_DEFINITIONS = 256
"""Tables and indexes in a database, at most: more than any version of a node has had."""

_NAMES = r"\(\w+(, \w+)*\)"
_CONSTRAINT = r"( PRIMARY KEY| NOT NULL| CHECK \(id = 1\)| DEFAULT (\d+|'[^']*'))"
_COLUMN = rf"\w+( (INTEGER|REAL|TEXT|BLOB))?{_CONSTRAINT}*"
_PART = rf"(PRIMARY KEY {_NAMES}|UNIQUE {_NAMES}|{_COLUMN})"
_TABLE = rf"CREATE TABLE (?!sqlite_)\w+ ?\( ?{_PART}( ?, {_PART})* ?\)( STRICT)?"
"""SQLite writes a column that was added later behind a line break."""
_INDEX = rf"CREATE INDEX (?!sqlite_)\w+ ON \w+ {_NAMES}"
_DEFINITION = re.compile(f"{_TABLE}|{_INDEX}", re.ASCII)
_TEXT_OR_COMMENT = re.compile(r"'[^']*'|--[^\n]*")


def is_plain(definition: object) -> bool:
    """Return whether SQLite runs no code for a definition of sqlite_master. None is the index of a primary key."""
    if definition is None:
        return True
    if not isinstance(definition, str):  # SQLite takes the bytes of a text, too
        return False
    without_comments = _TEXT_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == "'" else " ", definition)
    return _DEFINITION.fullmatch(" ".join(without_comments.split())) is not None
