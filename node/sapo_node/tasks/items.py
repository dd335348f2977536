"""Hashes of the first items of each dataset, so that a node notices if its library builds other items.

`item_hashes.json` beside this module has the hashes of 16 items of each dataset with its default configuration.
`python -m research.datasets` writes it.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources

SEEDS = tuple(1_000_003 * number for number in range(16))
"""Seeds of the items."""


@functools.cache
def known_hashes() -> Mapping[str, Sequence[str]]:
    """Return for each dataset the hashes of the items of SEEDS, in that order."""
    hashes: Mapping[str, str] = json.loads(resources.files(__package__).joinpath("item_hashes.json").read_text("utf-8"))
    return {dataset: joined.split() for dataset, joined in hashes.items()}


def item_hash(digest: bytes) -> str:
    """Return the part of a task's digest that the file keeps: 4 bytes as hexadecimal digits."""
    return digest[:4].hex()
