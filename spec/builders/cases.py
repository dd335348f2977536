"""A case, and its JSON file, in which bytes are hexadecimal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCEPT = "accept"


@dataclass(frozen=True)
class Case:
    """One vector. `name` says what it shows, and the file is named after it."""

    name: str
    rule: str
    kind: str
    input: Mapping[str, Any]
    expect: str = ACCEPT
    output: Mapping[str, Any] | None = None
    """The output of an implementation that accepts; None where only the verdict counts."""
    note: str = ""
    """The reason, if the name does not say it."""
    grammar: bool | None = None
    """Whether the bytes fit the CDDL; None where the CDDL does not apply."""

    @property
    def path(self) -> Path:
        return Path(self.kind) / (self.name.replace(" ", "-") + ".json")

    def rendered(self) -> str:
        content = {
            "kind": self.kind,
            "name": self.name,
            "rule": self.rule,
            "note": self.note,
            "expect": self.expect,
            "output": _plain(self.output),
            "grammar": self.grammar,
            "input": _plain(self.input),
        }
        kept = {key: value for key, value in content.items() if value is not None and value != ""}
        return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
