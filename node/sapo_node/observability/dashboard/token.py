"""The token of the page, in a file that only its owner can read: Prometheus and bookmarks keep it over restarts.

The file is not part of a backup, so a restored node has another token. To withdraw a token, remove the file and start
the node again.
"""

import re
import secrets
from contextlib import suppress
from pathlib import Path

from sapo_node.storage.private import write_private
from sapo_protocol.files import NoSuchFile, read_bounded

_BYTES = 16
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{22}")
"""_BYTES random bytes in URL-safe base64."""
_MAX_FILE = 64


def kept_token(path: Path) -> str:
    """The token in the file. A missing or damaged file is written anew. Raises LocalError if it cannot be."""
    with suppress(NoSuchFile):
        stored = read_bounded(path, _MAX_FILE, "token of the page")
        if _TOKEN.fullmatch(stored):
            return stored.decode("ascii")
    token = secrets.token_urlsafe(_BYTES)
    write_private(path, token.encode("ascii"), "token of the page")
    return token
