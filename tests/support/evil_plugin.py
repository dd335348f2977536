"""A task of another package that attacks the sandbox from inside, as `sapo_node.tasks.plugins` loads it.

`item` runs while a child of the sandbox rebuilds a task. Its configuration names what it does. `{"attempt": NAME}` runs
an attempt of escapes.py and returns its outcome as the question, so that a test sees the outcome of each attempt.
`{"write": NAME}` writes FLOODS[NAME] to the descriptor for the child's reply, as an attacker would.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import escapes

SCORER_VERSION = 1
DATASET = "evil.escape"

DIGEST = b"ab" * 32
LONGEST_LINE = b'["' + rb"\ud83d\ude00" * 32_768 + b'","' + DIGEST + b'","","' + rb"\ud83d\ude00" * 4_096 + b'"]\n'
"""The longest result that a child may write."""

FLOODS: dict[str, tuple[bytes, bytes]] = {
    "empty lists": (b"[", b"[],"),
    "empty lists in lines": (b"", b"[" + b"[]," * 100_000 + b"[]]\n"),
    "empty objects": (b"[", b"{},"),
    "nested objects": (b"", b'{"a":'),
    "nested lists": (b"", b"["),
    "a long whole number": (b"", b"9"),
    "long floats": (b"[", b"0." + b"7" * 30 + b","),
    "one long text": (b'["', b"x"),
    "empty lines": (b"", b"\n"),
    "failures in lines": (b"", b'""\n'),
    "zero bytes": (b"", b"\0"),
    "longest results without end": (b"", LONGEST_LINE),
}
"""How each flood of 50 MB begins, and what is repeated then."""


def item(config: Mapping[str, Any], _seed: int) -> tuple[str, str]:
    match config:
        case {"attempt": str(name)}:
            return escapes.outcome(name), "x"
        case {"write": str(name)}:
            start, repeated = FLOODS[name]
            flood(start, repeated, 50_000_000 // len(repeated))
        case {"longest": int(number)}:
            flood(b"", LONGEST_LINE, number)
    return "a question", "an answer"


def earns(_question: str, _answer: str, _given: str) -> bool:
    return True


def flood(start: bytes, repeated: bytes, times: int) -> None:
    """Write all this as far as anybody reads it, and end this child."""
    descriptor = next(fd for fd in range(3, 64) if can_write(fd))
    at_once = min(times, 65_536 // len(repeated) + 1)
    try:
        write(descriptor, start)
        for _ in range(times // at_once):
            write(descriptor, repeated * at_once)
        write(descriptor, repeated * (times % at_once))
    finally:
        os._exit(0)


def write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def can_write(descriptor: int) -> bool:
    try:
        os.write(descriptor, b"")
    except OSError:
        return False
    return True


def install(folder: Path, *, dataset: str = DATASET, module: str = __name__, package: str = "") -> None:
    """Write into `folder` what pip would: the entry point by which a package brings `module` as the task `dataset`."""
    package = package or dataset.replace(".", "-").replace("_", "-")
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sapo_node.tasks]\n{dataset} = {module}\n")


def install_each(folder: Path, modules: Mapping[str, str], *, family: str) -> None:
    """Install a package for each module, given by its name and its text, as the task `family.name`."""
    for name, text in modules.items():
        install(folder / name, dataset=f"{family}.{name}", module=f"{family}_{name}")
        (folder / name / f"{family}_{name}.py").write_text(text)
