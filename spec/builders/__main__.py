"""Writes every case to spec/vectors. With --check it only lists the files that differ from what the builders write."""

import re
import sys
from importlib import import_module
from pathlib import Path

KINDS = (
    "encoding",
    "signature",
    "envelope",
    "header",
    "body",
    "message",
    "evidence",
    "request",
    "listing",
    "delivery",
    "introductions",
    "manifest",
    "window",
    "topic",
    "shard",
    "assignment",
    "item",
    "answer",
    "row",
    "comparison",
    "mathematics",
    "rollout",
)
NAME = re.compile("[a-z0-9]+([ -][a-z0-9]+)*")
VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def rendered() -> dict[Path, str]:
    """The text of every vector by its path below spec/vectors. Exits if two cases have the same name."""
    files: dict[Path, str] = {}
    for kind in KINDS:
        for case in import_module(kind).cases():
            if not NAME.fullmatch(case.name):
                sys.exit(f"{kind}: a name is of a-z, 0-9, single blanks and hyphens, unlike {case.name!r}")
            if case.path in files:
                sys.exit(f"two cases are named {case.path}")
            files[case.path] = case.rendered()
    return files


def differing(files: dict[Path, str]) -> list[Path]:
    """The files that are missing, different, or written by no builder."""
    stored = {path.relative_to(VECTORS): path.read_bytes() for path in VECTORS.glob("**/*.json")}
    wanted = {path: content.encode() for path, content in files.items()}
    return sorted(path for path in stored.keys() | wanted.keys() if stored.get(path) != wanted.get(path))


def write(files: dict[Path, str]) -> None:
    for path in differing(files):
        target = VECTORS / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files[path].encode())
        else:
            target.unlink()


def main(arguments: list[str]) -> int:
    files = rendered()
    if arguments == ["--check"]:
        differences = differing(files)
        print(*differences, sep="\n", end="\n" if differences else "")  # noqa: T201 - the output of --check
        return 1 if differences else 0
    if arguments:
        sys.exit("usage: python spec/builders [--check]")
    write(files)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
