"""Checks that constraints.txt pins all that is installed here, and requirements.lock all that `make install` installs.

python scripts/pins.py
"""

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS, EXTRAS, GROUP = "sapo-node", "load,gguf", "dev"
"""What `make install` installs."""
TORCH = frozenset({"torch", "networkx", "setuptools"})
"""torch and what only torch needs: no hash holds for them, because each platform has its own build of torch."""
BROUGHT_BY_TORCH = re.compile(r"nvidia-|cuda-|triton")
PIN = re.compile(r"^([\w.-]+)==([^\s;]+)(.*?)(?=^\w|\Z)", re.MULTILINE | re.DOTALL)


def pins(file: str) -> dict[str, tuple[str, str]]:
    """Of each distribution in a file of requirements the version, and the text behind it, which may hold hashes."""
    found = PIN.findall((ROOT / file).read_text("utf-8"))
    return {canonicalize_name(name): (version, rest) for name, version, rest in found}


def installed() -> dict[str, str]:
    """The version of each installed distribution, without the label of a local build (2.13.0+cpu is 2.13.0)."""
    found = importlib.metadata.distributions()
    return {canonicalize_name(each.name): each.version.partition("+")[0] for each in found}


def required() -> set[str]:
    """What `make install` installs on this platform, by the requirements of what is installed."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    entries = [entry for name in (GROUP, "test") for entry in groups[name] if isinstance(entry, str)]
    waiting = [Requirement(text) for text in (f"{OURS}[{EXTRAS}]", *entries)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen or name in TORCH:
                continue
            seen.add((name, extra))
            needs = map(Requirement, importlib.metadata.requires(name) or ())
            waiting += [each for each in needs if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen} - {OURS}


def complaints() -> Iterator[str]:
    """What is not pinned, or is pinned to something else than what is installed."""
    constraints, lock = pins("constraints.txt"), pins("requirements.lock")
    for name, version in installed().items():
        pinned, _ = constraints.get(name, ("nothing", ""))
        if pinned != version and name not in {OURS, "setuptools"} and not BROUGHT_BY_TORCH.match(name):
            yield f"{name} {version} is installed, and constraints.txt pins {pinned}"
    for name in sorted(required()):
        version, rest = lock.get(name, ("", ""))
        if "--hash=sha256:" not in rest:
            yield f"requirements.lock has no hash for {name}: run make lock"
        elif version != constraints.get(name, ("", ""))[0]:
            yield f"requirements.lock pins {name} {version}, and constraints.txt does not: run make lock"


def main() -> int:
    """Print what is wrong; the exit status tells whether anything is."""
    found = list(complaints())
    sys.stdout.writelines(f"{complaint}\n" for complaint in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
