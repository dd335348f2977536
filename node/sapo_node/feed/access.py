"""How a trainer finds the feed of a node: the file with its address and token, in the state folder of the node. And how
the trainer names itself.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from sapo_node.groups.codec import from_json
from sapo_protocol.errors import LocalError
from sapo_protocol.files import read_bounded

FILE = "feed.json"
MAX_WAIT = 30.0
"""Seconds that a request for work may wait for some."""
TRAINER_HEADER = "Sapo-Trainer"
"""The header of HTTP in which a trainer names itself."""
TRAINER = "[A-Za-z0-9_-]{1,64}"
"""The grammar of the name."""
_MAX_FILE_BYTES = 4_096
_LEAST_TOKEN = 32
"""Characters of a token, at least: nobody can guess it."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the feed is, and the token for it: what a trainer reads from FILE."""

    url: str
    token: str


def read_access(file: Path) -> Access:
    """The address and token of the feed that wrote this file. Raises LocalError."""
    data = read_bounded(file, _MAX_FILE_BYTES, "file of a feed")
    try:
        access = from_json(Access, json.loads(data))
    except (ValueError, RecursionError):
        access = Access("", "")
    if len(access.token) < _LEAST_TOKEN:
        raise LocalError(f"{file} is no file of a feed; remove it, and start the node with --no-train --feed")
    return access
