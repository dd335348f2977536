"""The vectors of the standard, as the driver asks them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapo_protocol import LocalError


@dataclass(frozen=True, slots=True)
class Case:
    """One vector: what is asked, and what every reader must answer."""

    path: str
    """Folder and file under spec/vectors, by which people find it."""
    kind: str
    rule: str
    input: Mapping[str, Any]
    expect: str
    """`accept`, or the layer that refuses."""
    output: Mapping[str, Any] | None
    """What an accepting reader must have found; None where acceptance says it all."""
    note: str
    """Why it must be so."""

    @property
    def request(self) -> dict[str, Any]:
        """What the reader receives: never the rule, nor the answer."""
        return {"kind": self.kind, "input": self.input}


def vectors_folder() -> Path:
    """The folder of the vectors: the copy in an installed package, else the repository's own."""
    packaged = Path(__file__).parent / "vectors"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "spec" / "vectors"


def load_cases(rule: str = "") -> list[Case]:
    """All cases by path; with `rule`, those of one rule ("ENC-3") or one section of rules ("ENC").

    Raises LocalError when there are none.
    """
    folder = vectors_folder()
    cases = [_load(file, folder) for file in sorted(folder.glob("*/*.json"))]
    if not cases:
        raise LocalError(f"no vectors in {folder}: install the package again, or run from a whole repository")
    chosen = [case for case in cases if not rule or rule in {case.rule, section(case.rule)}]
    if not chosen:
        sections = ", ".join(sorted({section(case.rule) for case in cases}))
        raise LocalError(f"no vector is for the rule {rule!r}; give one such as ENC-3, or a section: {sections}")
    return chosen


def section(rule: str) -> str:
    """The name of a rule without its number."""
    return rule.partition("-")[0]


def in_order(rule: str) -> tuple[str, int]:
    """A key that sorts ENC-2 before ENC-10."""
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
