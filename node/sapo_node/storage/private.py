"""Writes a file that only its owner can read, in place of one that may be there."""

import os
from pathlib import Path

from sapo_node.storage.sync import sync
from sapo_protocol.errors import LocalError


def write_private(path: Path, content: bytes, what: str) -> None:
    """Write a file with mode 0600; `what` names it in errors. A reader sees the old content or the new one, also after
    a power cut.

    Raises LocalError.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        sync(new)
        new.replace(path)
        sync(path.parent)
    except OSError as error:
        raise LocalError(f"cannot write the {what} {path}: {error.strerror}; free disk space") from error
