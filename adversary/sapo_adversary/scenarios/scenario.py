"""A scenario: one attack, the swarm that it meets, the harm that it must do and the bounds that the defence must hold.

`ScenarioFile` has the keys of its TOML file, with one error for each key that would have no effect:

    scenario = load_scenario("false-claim")
    run = scenario.simulation("undefended", share=0.25, seed=1)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal

from sapo_adversary.ablations.defences import DEFENCES
from sapo_adversary.attacks.catalogue import THREATS
from sapo_adversary.files import load_named, made, names_in, require_type, suggestion
from sapo_adversary.scenarios.metrics import ABOUT, REFUSED
from sapo_adversary.simulator.simulation import ACTS_EVERY, AttackerSpec, Device, NodeSpec, Simulation, simulation_from
from sapo_node.app.config import Config
from sapo_node.learner.catalogue import CATALOGUE
from sapo_node.observability.reasons import REASONS
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


Arm = Literal["alone", "control", "friends", "undefended", "defended"]
"""Without a swarm; in an honest swarm; in that swarm with all peers trusted; attacked without the named defences;
attacked with all defences."""

HONEST = 12
"""Honest nodes: shares from a sixteenth to three quarters are then nearly whole numbers of attackers."""
SHARE = 0.25
"""The default share of all peers that attack."""
SHARES = (0.0625, 0.125, 0.25, 0.5, 0.75)
"""The shares at which the worst attacks are played."""
Scale = Literal["full", "quick", "models"]
"""The size of the runs: that of reported results; small, to show only that nothing false is trained on; or with real
language models in place of the stand-in learner."""
_SMALLER: Mapping[Scale, tuple[int, Mapping[str, Any]]] = {
    "quick": (6, {"seconds": 40.0}),
    "models": (6, {"seconds": 120.0, "learner": "model"}),
}
"""(number of honest nodes, settings that differ)."""
_COMMON: Mapping[str, Any] = {
    "seconds": 120.0,
    "learner": "bandit",
    "epoch_seconds": 60,
    "max_rounds": 60,
    "degree": 6,
    "audited": True,
}
_NODE: Mapping[str, Any] = {"round_seconds": 2.0, "external": "auto", "filters": Config().filters}
_REAL_NODE: Mapping[str, Any] = {**_NODE, "count": 6, "round_seconds": 4.0}
_REAL: Mapping[str, Any] = {**_COMMON, "seconds": 44.0, "degree": 2}
"""Settings on libp2p, where time is real."""
_SCENARIOS = "sapo_adversary.data.scenarios"


@dataclass(frozen=True, slots=True)
class Bound:
    """The range that a metric must be in."""

    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, value: float) -> bool:
        """Return whether a value is in the range."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        low = [] if self.at_least is None else [f"at least {self.at_least:g}"]
        high = [] if self.at_most is None else [f"at most {self.at_most:g}"]
        return " and ".join(low + high)


_SAFETY: Mapping[str, Bound] = {"violations": Bound(at_most=0), "false_bans": Bound(at_most=0)}
_PROMISES: Mapping[str, Bound] = {
    **_SAFETY,
    "poison_share": Bound(at_most=0.1),
    "below_alone": Bound(at_most=0.02),
}
"""Bounds on the defended arm of every scenario, at every share of attackers."""
_LOST = {0.25: 0.02, 0.5: 0.05}
"""The share of reward that honest nodes may lose, up to each share of attackers."""


def promises(share: float) -> dict[str, Bound]:
    """Bounds on a defended swarm with this share of attackers, whatever the attack."""
    lost = next((lost for most, lost in _LOST.items() if share <= most), None)
    losses = {} if lost is None else dict.fromkeys(("reward_lost", "heldout_lost"), Bound(at_most=lost))
    return {**_PROMISES, **losses}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One attack and all that is asked of it."""

    name: str
    title: str
    attack: str
    """One of `attacks.catalogue`; empty if nobody attacks."""
    undefended: tuple[str, ...]
    """Defences that the undefended arm goes without. Where it names none, there is no such arm."""
    harm: Mapping[str, Bound]
    """Bounds on the undefended arm, by metric: an attack without harm proves nothing."""
    holds: Mapping[str, Bound]
    """Bounds on the defended arm, by metric. They replace a promise, and at SHARE add to the promises."""
    table: Mapping[str, Any] = field(repr=False)
    """The whole file."""
    scale: Scale = "full"
    keys: int = 0
    """Keys over which the attackers split the same messages, sent over the same links; 0 leaves the number of keys to
    the share and the file."""
    strangers: bool = False
    """True if every peer starts untrusted, also where the file says otherwise."""
    device: Device = "cpu"
    """The device of the models, unless the file names one."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that it is played in: `friends` where the peers are strangers."""
        friends: tuple[Arm, ...] = () if self._trusted or self.realtime else ("friends",)
        undefended: tuple[Arm, ...] = ("undefended",) if self.undefended else ()
        return ("alone", "control", *friends, *undefended, "defended")

    @property
    def _trusted(self) -> bool:
        """True if all honest peers are healthy from the start."""
        return not self.strangers and bool(self.table.get("simulation", {}).get("trusted", True))

    def simulation(self, arm: Arm, *, share: float = SHARE, seed: int = 1) -> Simulation:
        """One run of one arm. All scenarios with the same swarm have the same control arm."""
        common_node, common = (_REAL_NODE, _REAL) if self.realtime else ({**_NODE, "count": HONEST}, _COMMON)
        node = {**common_node, "device": self.device, **self.table.get("node", {})}
        settings = {**common, **self.table.get("simulation", {}), "seed": seed}
        if self.learns:
            # So many that one attacker is no more than the share.
            node["count"] = max(node["count"], round(1 / share) - 1)
        if self.strangers:
            settings["trusted"] = False
        if arm == "friends":
            settings["trusted"] = True
        if self.scale in _SMALLER:
            node["count"], smaller = _SMALLER[self.scale]
            settings |= {**smaller, "crowd": 0}
        if arm == "alone":
            node["external"] = 0
            settings.pop("network", None)  # a node alone needs no network
            settings.pop("crowd", None)
        if self.attack and arm in ("undefended", "defended"):
            settings["attackers"] = self._bands(attackers_at(share, node["count"] + settings.get("crowd", 0)))
        if arm == "undefended":
            settings["without"] = self.undefended
        return simulation_from({**settings, "nodes": self._kinds(node), "name": f"{self.name}, {arm}"})

    def _kinds(self, node: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The honest nodes, `count` in all: in turn of each kind, where the file has kinds."""
        kinds = self.table.get("kinds", [{}])
        counts = [len(range(n, node["count"], len(kinds))) for n in range(len(kinds))]
        return [{**node, **kind, "count": count} for kind, count in zip(kinds, counts, strict=True) if count]

    def _bands(self, count: int) -> list[dict[str, Any]]:
        """The attackers, at most `count` keys in all: equal numbers for the attack and for each attack beside it. Each
        attack has at least one key.
        """
        common = {"count": max(1, count // len(self.attacks)), **self.table.get("attackers", {})}
        if self.keys:
            common = _split_over(common, self.keys // len(self.attacks))
        if self.strangers:
            common["trusted"] = False
        bands = [{**common, "attack": attack} for attack in self.attacks]
        bands[0] |= {"options": self.table.get("options", {})}
        return bands

    def bounds(self, arm: Arm, share: float) -> dict[str, Bound]:
        """Bounds on one arm at a share of attackers."""
        if self.scale == "quick":
            return dict(_SAFETY) if arm == "defended" else {}
        if self.scale == "models":
            return promises(share) if arm == "defended" else {}
        if arm == "undefended":
            return dict(self.harm) if share == SHARE else {}
        if arm == "defended":
            common = dict(_SAFETY) if self.realtime else promises(share)
            if not self.attack:
                common = dict(_SAFETY)
            if self.learns:
                # Attackers who are trusted may be taken in as others are; what counts is what they teach.
                common = {metric: bound for metric, bound in common.items() if metric != "poison_share"}
            instead = {metric: bound for metric, bound in self.holds.items() if metric in common}
            return {**common, **(self.holds if share == SHARE else instead)}
        return {}

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attack, and the attacks beside it."""
        return (self.attack, *self.table.get("beside", ()))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The defences that the undefended arm goes without, where they are not those of the file."""
        return () if self.undefended == tuple(self.table.get("undefended", ())) else self.undefended

    @property
    def label(self) -> str:
        """The name, with the keys, the strangers and the defences left out where they are not those of the file."""
        keys = [f"{self.keys:,} {'key' if self.keys == 1 else 'keys'}"] if self.keys else []
        without = [f"without {' and '.join(self.left_out)}"] if self.left_out else []
        return ", ".join([self.name, *keys, *(["strangers"] if self.strangers else []), *without])

    @property
    def layer(self) -> str:
        """The part of a node that is attacked; empty if nobody attacks."""
        return THREATS[self.attack].layer if self.attack else ""

    @property
    def threat(self) -> str:
        """The threat of the attack, as one line."""
        return THREATS[self.attack].threat() if self.attack else "None: all peers are honest."

    @property
    def realtime(self) -> bool:
        """True if it is played on libp2p, in real time."""
        return bool(self.table.get("simulation", {}).get("network") == "libp2p")

    @property
    def learns(self) -> bool:
        """True if it measures the learning of language models, and is always played with real ones."""
        return bool(self.table.get("simulation", {}).get("learner") == "model")

    @property
    def needs_fetch(self) -> bool:
        """True if its nodes need a model from `sapo-node model fetch`."""
        return self.table.get("node", {}).get("model") in CATALOGUE

    @property
    def crowded(self) -> bool:
        """True if it has a crowd: each of its runs takes as long as a whole matrix."""
        return "crowd" in self.table.get("simulation", {})

    @property
    def grows(self) -> bool:
        """True if the number of its attackers follows from the share, and not from the file."""
        return "count" not in self.table.get("attackers", {})


def _split_over(band: Mapping[str, Any], keys: int) -> dict[str, Any]:
    """The same messages for each second over the same links, signed by another number of keys.

    One key signs at most `max_rounds` messages in an epoch. Where the file asks a key for more, more keys send more.
    """
    links = min(keys, band.get("links", 0) or band["count"])
    pace = band.get("acts_every", ACTS_EVERY) * keys / band["count"]
    return {**band, "count": keys, "links": links if links < keys else 0, "acts_every": pace}


def with_keys(scenario: Scenario, keys: int) -> Scenario:
    """The scenario with so many keys. Raises LocalError if each key is a host of its own, and where the attacks
    cannot have equal numbers of keys.
    """
    if keys and scenario.realtime:
        raise LocalError(f"{scenario.name} plays on libp2p, where each key is a host: leave the number of keys away")
    attacks = len(scenario.attacks)
    if keys % attacks:
        raise LocalError(f"{scenario.name} splits its keys over {attacks} attacks: give a multiple of {attacks}")
    return replace(scenario, keys=keys)


def attackers_at(share: float, honest: int) -> int:
    """Return the number of attackers that make up a share of all peers, at least one."""
    return max(1, round(honest * share / (1 - share)))


def scenario_names() -> list[str]:
    """The scenarios in the package, in the order of the catalogue of attacks."""
    places = {attack: place for place, attack in enumerate((*THREATS, ""))}
    return sorted(names_in(_SCENARIOS), key=lambda name: (places[load_scenario(name).attack], name))


def load_scenario(name: str) -> Scenario:
    """Read a scenario of the package by name, or any by the path of its file. Raises LocalError for a bad one."""
    return load_named(_SCENARIOS, name, "scenario", "sapo-adversary list", _scenario)


def _scenario(name: str, table: Mapping[str, Any]) -> Scenario:
    file = read_file(name, table)
    harm, holds = _bounds(name, file.harm), _bounds(name, file.holds)
    scenario = Scenario(name, file.title, file.attack, tuple(file.undefended), harm, holds, table)
    scenario = with_keys(scenario, file.keys)
    scenario.simulation("defended")  # raises LocalError where the swarm cannot be
    return scenario


def _bounds(name: str, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Bound]:
    for metric, bound in table.items():
        known = (*ABOUT, *(f"{REFUSED}{reason}" for reason in REASONS))
        if metric not in known:
            raise LocalError(f"{name}: no metric {metric!r}; {suggestion(metric, known)}")
        numbers = all(type(value) in (int, float) and isfinite(value) for value in bound.values())
        if not bound or not bound.keys() <= {"at_least", "at_most"} or not numbers:
            raise LocalError(f"{name}: the bound of {metric} is at_least, at_most or both, each a finite number")
    return {metric: Bound(**bound) for metric, bound in table.items()}
