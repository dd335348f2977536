"""The file of a scenario: its keys, and one error for each key that would have no effect.

file = read_file("mine", table)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.files.typed import made, require_type, suggestion
from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec
from sapo_protocol import LocalError

_BELONGS: Mapping[str, Mapping[str, str]] = {
    "attackers": {
        "options": "write them at the top of the file, as [options]",
        "attack": "write it at the top of the file, above the first table",
    },
    "simulation": {
        "nodes": "write them as [node], and as [[kinds]] where they differ",
        "attackers": "write them as [attackers]",
        "without": "write the defences as undefended, at the top of the file",
        "audited": "every run of a scenario is compared with the truth, which its metrics read",
        "seed": "give --seeds to the command",
        "name": "the name of the file is the name of the scenario",
    },
    "kinds": {"count": "write the number of all nodes into [node]"},
}
"""By table: keys that the scenario sets by itself, and where its author sets them."""
_NEEDS_ATTACK = ("beside", "options", "attackers", "keys")


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """The keys of a scenario's file."""

    title: str
    attack: str = ""
    undefended: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    simulation: Mapping[str, Any] = field(default_factory=dict)
    node: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    attackers: Mapping[str, Any] = field(default_factory=dict)
    keys: int = 0
    harm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    holds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_file(name: str, table: Mapping[str, Any]) -> ScenarioFile:
    """Return the table as a file. Raises LocalError for an unknown key, and for one that would have no effect."""
    file = made(ScenarioFile, table, name)
    for attack in (file.attack, *file.beside):
        if attack and attack not in THREATS:
            raise LocalError(f"{name}: no attack {attack!r}; {suggestion(attack, THREATS)}")
    for defence in file.undefended:
        if defence not in DEFENCES:
            raise LocalError(f"{name}: no defence {defence!r}; {suggestion(defence, DEFENCES)}")
    for place, part in (("attackers", file.attackers), ("simulation", file.simulation)):
        _require_place(name, place, part)
    made(AttackerSpec, {"attack": file.attack, **file.attackers}, f"attackers of {name}")
    made(NodeSpec, file.node, f"node of {name}")
    for kind in file.kinds:
        made(NodeSpec, kind, f"one of kinds of {name}")
        _require_place(name, "kinds", kind)
    require_type(file.simulation.get("crowd", 0), int, f"crowd of {name}")
    _require_effect(name, file)
    return file


def _require_place(name: str, place: str, part: Mapping[str, Any]) -> None:
    for key, belongs in _BELONGS[place].items():
        if key in part:
            raise LocalError(f"{name}: {place} has no {key!r}; {belongs}")


def _require_effect(name: str, file: ScenarioFile) -> None:
    for key in _NEEDS_ATTACK:
        if getattr(file, key) and not file.attack:
            raise LocalError(f"{name}: {key} has no effect without an attack; name one, as attack = 'false-claim'")
    if file.harm and not file.undefended:
        raise LocalError(f"{name}: harm is that of nodes without a defence; name the defence in undefended")
