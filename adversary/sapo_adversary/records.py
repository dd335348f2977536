"""Files of results that are there whole or not at all."""

import json
import os
import re
from pathlib import Path
from typing import Any

_FLAT_LIST = re.compile(r"\[\s+([^][{}\"]+?)\s+\]")
"""A list of numbers, as `json` lays it out."""


def to_json(value: Any) -> str:
    """JSON that a person can read and compare: indented, with lists of numbers on one line each."""
    return _FLAT_LIST.sub(lambda match: f"[{' '.join(match[1].split())}]", json.dumps(value, indent=1)) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write a file by one rename, so that whoever reads it, and a run that is resumed, never meets half of one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)
