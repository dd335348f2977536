"""The file with the address and token of a feed, which a trainer reads, and the limits that trainer and feed share."""

import json
from dataclasses import dataclass
from pathlib import Path

from sapo_node.groups.codec import from_json
from sapo_protocol.errors import LocalError
from sapo_protocol.files import read_bounded

FILE = "feed.json"
MAX_WAIT = 30.0
"""Seconds that a request for work may wait."""
LEASE_SECONDS = MAX_WAIT + 10
"""Seconds from the last request of a trainer to the end of its lease: longer than a request for work may wait."""
TRAINER_HEADER = "Sapo-Trainer"
"""The HTTP header with the name of the trainer."""
TRAINER = "[A-Za-z0-9_-]{1,64}"
"""The grammar of that name."""
_MAX_FILE_BYTES = 4_096
_LEAST_TOKEN = 32
"""Least characters of a token, so that nobody can guess it."""


@dataclass(frozen=True, slots=True)
class Access:
    """The content of FILE: the address of the feed and the token for it."""

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
