"""Loads the vectors of the standard for the driver."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapo_protocol import LocalError


@dataclass(frozen=True, slots=True)
class Case:
    """One vector: a request, and the response that every implementation must give."""

    path: str
    """Folder and file under spec/vectors."""
    kind: str
    rule: str
    input: Mapping[str, Any]
    expect: str
    """`accept`, or the layer that refuses."""
    output: Mapping[str, Any] | None
    """The output that must come with `accept`; None if only the verdict is compared."""
    note: str
    """Why this is the expected response."""

    @property
    def request(self) -> dict[str, Any]:
        """What the implementation receives. It receives neither the rule nor the expected response."""
        return {"kind": self.kind, "input": self.input}


def vectors_folder() -> Path:
    """Return the folder of the vectors: the copy in an installed package, else the folder of the repository."""
    packaged = Path(__file__).parent / "vectors"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "spec" / "vectors"


def load_cases(rule: str = "") -> list[Case]:
    """Load all cases, sorted by path. With `rule`, load the cases of one rule ("ENC-3") or of one section ("ENC").

    Raises LocalError if there are none.
    """
    folder = vectors_folder()
    cases = [_load(file, folder) for file in sorted(folder.glob("*/*.json"))]
    if not cases:
        raise LocalError(f"no vectors in {folder}; install the package again, or run from a complete repository")
    chosen = [case for case in cases if not rule or rule in {case.rule, section(case.rule)}]
    if not chosen:
        sections = ", ".join(sorted({section(case.rule) for case in cases}))
        raise LocalError(f"no vector is for the rule {rule!r}; give a rule (example: ENC-3) or a section: {sections}")
    return chosen


def section(rule: str) -> str:
    """Return the name of a rule without its number."""
    return rule.partition("-")[0]


def in_order(rule: str) -> tuple[str, int]:
    """Return a sort key that puts ENC-2 before ENC-10."""
    number = re.search(r"\d+$", rule)
    return section(rule), int(number[0]) if number else 0


def _load(file: Path, folder: Path) -> Case:
    vector = json.loads(file.read_text("utf-8"))
    return Case(
        path=file.relative_to(folder).as_posix(),
        kind=vector["kind"],
        rule=vector["rule"],
        input=vector["input"],
        expect=vector["expect"],
        output=vector.get("output"),
        note=vector.get("note", ""),
    )
