"""With which code and packages a run is played: its record has them, because no setting of a simulation follows from
them and each changes results.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any

PACKAGES = ("sapo-node", "torch", "transformers", "reasoning-gym")
"""Packages whose versions a record has."""
_CODE = "code"
"""The sources that play, beside the versions of the packages: they change in a checkout whose version stays."""
_SOURCES = ("sapo_protocol", "sapo_node", "sapo_adversary")
_PLAY_NOTHING = frozenset({"cli", "scenarios", "experiments", "load", "data"})
"""Rooms that read records, or that no run passes through."""


def versions_now() -> dict[str, str]:
    """The versions of the packages, and the code, of this process."""
    return {**{package: version(package) for package in PACKAGES}, _CODE: _digest()}


def versions_of(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the versions of these records; several for a package where they differ."""
    told = [record.get("versions", {}) for record in records]
    names = (*PACKAGES, _CODE)
    return {name: ", ".join(sorted({each.get(name, "unknown") for each in told})) for name in names}


@cache
def _digest() -> str:
    """Twelve hexadecimal digits of SHA-256 over the sources that play."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for name, source in sorted(_sources(resources.files(package), package)):
            digest.update(f"{name} {source}\n".encode())
    return digest.hexdigest()[:12]


def _sources(folder: Any, path: str) -> Iterator[tuple[str, str]]:
    """The path of each source in a folder, and the SHA-256 of its bytes."""
    for each in folder.iterdir():
        name = f"{path}/{each.name}"
        if each.is_dir() and each.name not in _PLAY_NOTHING:
            yield from _sources(each, name)
        elif name.endswith(".py"):
            yield name, hashlib.sha256(each.read_bytes()).hexdigest()
