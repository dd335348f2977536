"""The nodes and attackers of one simulated swarm, as values read from a table, with a digest that names them.

simulation = simulation_from({"name": "pair", "seconds": 60, "nodes": [{"count": 2}]})
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from sapo_adversary.attacks.catalogue import ATTACKS, GOSSIP
from sapo_adversary.files import made, require_options, suggestion
from sapo_node.groups.messages import FILTERS, Dtype, ExternalObjective, FilterName, reason_of
from sapo_node.learner.catalogue import CATALOGUE
from sapo_node.sampling.weights import Selection
from sapo_protocol import LocalError, load_manifest, shipped_manifests
from sapo_protocol.files import sha256_of

Control = Literal["", "replay", "filter", "oversample", "lookahead"]
"""The training of a control arm, in place of the plain one, or its choice of counters; see `controls` and
`lookahead`."""

Carrier = Literal["memory", "libp2p"]
Device = Literal["cpu", "cuda", "mps"]

MOST_PEERS = 20_000
"""Nodes, attackers and crowd of one simulation together: what one machine can hold."""

ACTS_EVERY = 2.0
"""Default virtual seconds between two actions of an attacker's key."""

_Spec = TypeVar("_Spec")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Nodes of one kind. Names and meanings are those of the node's configuration where it has them."""

    count: int = 1
    role: str = ""
    """The name of this kind in results."""
    local: int = 4
    external: int | Literal["auto"] = 4
    selection: Selection = "trust"
    external_objective: ExternalObjective = "positive-only"
    replay: bool = False
    learning_rate: float = 1e-4
    decay_rounds: int = 0
    """By default the learning rate is constant, unlike that of a node: most experiments end while it would still be
    high."""
    model: str = "seed"
    """`seed`, a model that `sapo-node model fetch` has, a prepared policy by name, or a model folder."""
    lora: int = 0
    lora_layers: int = 0
    dtype: Dtype = "float32"
    device: Device = "cpu"
    """There is no `auto`: devices round differently, so a record says which one it is of. On a GPU a run does not
    repeat byte for byte."""
    examples: int = 0
    filters: tuple[FilterName, ...] = ()
    """By default none: learning is measured without filters, and their cost in experiments of its own. Scenarios use
    the filters of a node's default configuration."""
    max_tokens: int = 80
    control: Control = ""
    round_seconds: float = 10.0
    """Virtual seconds per round: how fast this machine is."""
    joins: float = 0.0
    """Virtual second of its start."""
    leaves: float | None = None
    """Virtual second after which it plays no more rounds; None stays to the end."""

    @property
    def is_prepared(self) -> bool:
        """True if `model` is a prepared policy or a folder."""
        return self.model not in ("seed", *CATALOGUE)

    def rounds(self, seconds: float) -> int:
        """Return the number of rounds that the node plays in a simulation of `seconds` seconds."""
        return int((end_of(self, seconds) - self.joins) / self.round_seconds + 1e-9)


@dataclass(frozen=True, slots=True)
class AttackerSpec:
    """Peers that collude in one attack."""

    attack: str
    """One of `attacks.catalogue`."""
    count: int = 1
    """Keys that sign. They act in turn."""
    links: int = 0
    """Keys that are also peers of the network, and carry what all keys sign; 0: every key is such a peer. A crowd and
    libp2p carry the messages of each key by themselves."""
    acts_every: float = ACTS_EVERY
    """Virtual seconds between two actions of each key."""
    joins: float = 0.0
    """Virtual second of their start."""
    leaves: float | None = None
    """Virtual second of their end; None stays to the end."""
    trusted: bool = False
    """True if they start as healthy peers when the honest nodes do: insiders."""
    dialled: bool = False
    """True if they are bootstrap peers of the honest nodes; on libp2p."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the attack."""

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise LocalError(f"count of the attackers {self.attack} is {self.count}; give more than 0")


def end_of(spec: NodeSpec | AttackerSpec, seconds: float) -> float:
    """Return the virtual second at which a peer ends, in a simulation of `seconds` seconds."""
    return seconds if spec.leaves is None else min(seconds, spec.leaves)


@dataclass(frozen=True, slots=True)
class Simulation:
    """One swarm, one seed, one run."""

    name: str
    nodes: tuple[NodeSpec, ...]
    seed: int = 1
    swarm: str = "starter"
    """A shipped manifest or the path of one."""
    seconds: float = 500.0
    """Virtual seconds."""
    groups: int = 8
    """Groups in the loss's constant denominator: the same in every arm, whatever I and J are."""
    trusted: bool = True
    """True if all peers are healthy from the start, as in the paper; else they earn it."""
    loss: float = 0.0
    """Share of messages that each link loses."""
    eval_every: float = 0.0
    """Virtual seconds between held-out measurements of every node; 0 measures at the end only."""
    examine_questions: int = 16
    """Held-out questions per task within the run."""
    final_questions: int = 64
    """Held-out questions per task at the start and the end."""
    averaged: bool = False
    """True if the averaged weights are measured on held-out prompts, too."""
    learner: Literal["model", "bandit"] = "model"
    """The learner of each node: its language model, or the stand-in of `bandit` for questions about trust alone."""
    epoch_seconds: int = 0
    """Length of an epoch; 0 keeps the swarm's. Peers become healthy over epochs, so short epochs make short runs."""
    max_rounds: int = 0
    """Rounds of a peer in an epoch; 0 keeps the swarm's."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """By dataset, the levels of its tasks; other tasks keep those of the swarm."""
    degree: int = 0
    """Links that each joining peer makes; 0 links it with all peers."""
    audited: bool = False
    """True if an oracle compares all trained groups with the truth, and follows the ledgers."""
    crowd: int = 0
    """Honest peers beside the nodes, which sign and share but neither take groups in nor train; see `crowd`. They
    and the attackers reach the nodes through one forwarder, and `degree` does not matter."""
    network: Carrier = "memory"
    """The network: in memory on virtual time, or real libp2p on loopback on real time."""
    slots: int = 0
    """Connections that a node on libp2p holds at most; 0 keeps its own limit."""
    restarts: float = 0.0
    """Second after which the last node, on libp2p, restarts with what it keeps on disk and without its bootstrap peers;
    0 lets it run."""
    pulls: bool = False
    """True if nodes request missing messages and peers, as real nodes do. By default they do not: it would hide
    what gossip alone delivers."""
    inline_bytes: int = 0
    """Bytes above which a message of a large swarm leaves out its bodies, which peers then request; needs `pulls`. By
    default all messages are whole."""
    attackers: tuple[AttackerSpec, ...] = ()
    without: tuple[str, ...] = ()
    """Defences that the nodes go without; see `defences`."""

    def __post_init__(self) -> None:
        if not any(spec.count for spec in self.nodes) or self.seconds <= 0:
            raise LocalError(f"simulation {self.name}: give it nodes and seconds to run")
        peers = sum(spec.count for spec in self.nodes) + sum(band.count for band in self.attackers) + self.crowd
        if peers > MOST_PEERS:
            raise LocalError(f"simulation {self.name}: it has {peers:,} peers; give at most {MOST_PEERS:,}")
        for what, number in self._divisors():
            if number <= 0:
                raise LocalError(f"simulation {self.name}: {what} is {number}; give more than 0")
        for number, spec in enumerate(self.nodes, start=1):
            if spec.rounds(self.seconds) < 1:
                raise LocalError(
                    f"simulation {self.name}: {spec.role or f'node {number}'} would play no round; give at least"
                    f" round_seconds, {spec.round_seconds:g}, between joins and leaves or the end, {self.seconds:g}"
                )
        if self.loss > 1:
            raise LocalError(f"simulation {self.name}: loss is {self.loss:g}; give 0 to 1, a share of all messages")
        if self.network not in get_args(Carrier):
            raise LocalError(f"simulation {self.name}: no network {self.network!r}; there are memory and libp2p")
        if self.crowd and (self.learner != "bandit" or not self.audited):
            raise LocalError(f"simulation {self.name}: a crowd needs learner = 'bandit' and audited = true")
        if self.inline_bytes and (not self.pulls or self.crowd):
            raise LocalError(f"simulation {self.name}: inline_bytes needs pulls = true and no crowd")
        for band in self.attackers:
            self._require_attack(band)

    def _require_attack(self, band: AttackerSpec) -> None:
        kinds: Mapping[str, type[Any]] = ATTACKS if self.network == "memory" else GOSSIP
        if band.attack not in kinds:
            where = "in memory" if self.network == "memory" else "on libp2p"
            raise LocalError(f"no attack {band.attack!r} {where}; {suggestion(band.attack, kinds)}")
        if not 0 <= band.links <= band.count:
            raise LocalError(f"{band.attack}: links is {band.links}; give 0 to {band.count}, the number of keys")
        require_options(kinds[band.attack], band.options, band.attack)

    def _divisors(self) -> Iterator[tuple[str, float]]:
        """The numbers by which something is divided, or that pace a loop."""
        yield "groups", self.groups
        yield "final_questions", self.final_questions
        if self.eval_every:
            yield "examine_questions", self.examine_questions
        yield from (("round_seconds", spec.round_seconds) for spec in self.nodes)
        yield from (("acts_every", band.acts_every) for band in self.attackers)

    @property
    def members(self) -> list[NodeSpec]:
        """The specification of each single node, by number."""
        return [replace(spec, count=1) for spec in self.nodes for _ in range(spec.count)]

    @property
    def prepared_policies(self) -> frozenset[str]:
        """The policies that its nodes begin with and that are in the folder of prepared policies, by name."""
        return frozenset(spec.model for spec in self.nodes if spec.is_prepared and not Path(spec.model).is_absolute())

    @property
    def heldout_prompts(self) -> int:
        """Held-out questions per task that measurements ask. No node trains on them. There are none with the stand-in
        learner, which is measured without any question.
        """
        within = self.examine_questions if self.eval_every else 0
        return max(self.final_questions, within) if self.learner == "model" else 0

    def filters_of(self, spec: NodeSpec) -> tuple[FilterName, ...]:
        """The filters of a node that have an effect. There are none where the node takes no external groups. With the
        stand-in learner only `baseline` has an effect: it reads rewards, and the other filters read texts, which the
        stand-in does not write.
        """
        if spec.external == 0:
            return ()
        kept = (filter_name for filter_name in spec.filters if reason_of(filter_name) not in self.without)
        return tuple(filter_name for filter_name in kept if self.learner == "model" or filter_name == "baseline")

    @property
    def total_rounds(self) -> int:
        """Rounds of all nodes together: the unit of progress."""
        return sum(spec.rounds(self.seconds) for spec in self.members)

    def digest(self) -> str:
        """SHA-256, in hexadecimal, over every setting that differs from its default, without the name. Filters without
        an effect do not count. Of a manifest that is not shipped the bytes count, and not the path: its author may
        change the file.
        """
        filters = {reason_of(filter_name) for filter_name in FILTERS}
        told = replace(
            self,
            nodes=tuple(replace(spec, filters=self.filters_of(spec)) for spec in self.nodes),
            without=tuple(name for name in self.without if name not in filters),
        )
        numbers = {key: value for key, value in _chosen(told).items() if key != "name"}
        for kind in ("nodes", "attackers"):
            if kind in numbers:
                numbers[kind] = [_chosen(each) for each in getattr(told, kind)]
        if self.swarm not in shipped_manifests():
            load_manifest(self.swarm)  # raises LocalError, which says what to give, where there is no manifest
            numbers["swarm"] = sha256_of(Path(self.swarm), "manifest").hex()
        return hashlib.sha256(json.dumps(numbers, sort_keys=True, default=str).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The simulation as plain values; `simulation_from` takes them back."""
        return asdict(self)


def simulation_from(table: Mapping[str, Any]) -> Simulation:
    """The simulation that a table describes. Raises LocalError for an unknown key or an impossible value."""
    kinds = {"nodes": NodeSpec, "attackers": AttackerSpec}
    specs: dict[str, Any] = {name: _list_of(kind, table.get(name, ()), name) for name, kind in kinds.items()}
    without = table.get("without", ())
    if not isinstance(without, list | tuple):
        raise LocalError("without of a simulation must be a list of defences")
    return made(Simulation, {**table, **specs, "without": tuple(without)}, "a simulation")


def _list_of(kind: type[_Spec], tables: Any, name: str) -> tuple[_Spec, ...]:
    if not isinstance(tables, list | tuple):
        raise LocalError(f"give {name} as a list of tables, [[{name}]]")
    return tuple(made(kind, each, f"one of {name}") for each in tables)


def _chosen(value: NodeSpec | AttackerSpec | Simulation) -> dict[str, Any]:
    """The values that differ from the defaults: a new setting leaves the digests of older records as they are."""
    return {
        each.name: getattr(value, each.name) for each in fields(value) if getattr(value, each.name) != _default(each)
    }


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
