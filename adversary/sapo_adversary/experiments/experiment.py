"""An experiment as values: arms that differ in named settings, seeds that all arms share, and one reference
arm.

    load_experiment("sapo-table").part(["4/4"], 2)
"""

import itertools
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from sapo_adversary.files import load_named, made, names_in
from sapo_adversary.simulator.simulation import Device, NodeSpec, Simulation, simulation_from
from sapo_protocol import LocalError

_EXPERIMENTS = "sapo_adversary.data.experiments"
_NODE_KEYS = frozenset(each.name for each in fields(NodeSpec))
_SIMULATION_KEYS = frozenset(each.name for each in fields(Simulation)) - {"nodes", "name", "seed"}
_BELONGS = {"seed": "write seeds at the top of the file", "name": "the name of an arm is its table's, [arms.NAME]"}
"""Keys of a simulation that an experiment sets by itself, and where its author sets them."""


@dataclass(frozen=True, slots=True)
class _File:
    """The keys of an experiment's file."""

    title: str
    question: str
    seeds: tuple[int, ...]
    reference: str
    ceiling: float
    simulation: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Arms x seeds, each a simulation; common random numbers across arms."""

    name: str
    argument: str
    """The name that the user gave, or the path of the file."""
    title: str
    question: str
    """The question that it answers, in a sentence or two."""
    seeds: tuple[int, ...]
    """Seeds of the swarms, which are the independent units: all nodes of one swarm are one sample."""
    reference: str
    """The arm that the others are compared with, at the same point of the grid if there is one."""
    ceiling: float
    """Pass@1 that the policy can reach, fixed beforehand; `rounds_to_half` counts to half of it."""
    table: Mapping[str, Any] = field(repr=False)
    """The whole file, for the record."""
    arms: Mapping[str, Simulation] = field(repr=False)
    points: Mapping[str, str] = field(repr=False)
    """The point of the grid that an arm stands for, as the end of its label; empty if there is no grid."""
    device: Device = "cpu"
    """The device of the models, unless the file names one."""

    def part(self, arms: Collection[str], seeds: int | None) -> "Experiment":
        """The experiment with only the named arms (all where none is named) and its first `seeds` seeds. Raises
        LocalError for an unknown arm.
        """
        if unknown := set(arms) - set(self.arms):
            raise LocalError(f"{self.name} has no arm {', '.join(sorted(unknown))}; it has {', '.join(self.arms)}")
        chosen = {name: arm for name, arm in self.arms.items() if not arms or name in arms}
        return replace(self, arms=chosen, seeds=self.seeds[:seeds])

    def on(self, device: Device) -> "Experiment":
        """The experiment with the models of nodes on `device`, unless its file names another one than the CPU."""

        def moved(spec: NodeSpec) -> NodeSpec:
            return replace(spec, device=device) if spec.device == "cpu" else spec

        arms = {name: replace(arm, nodes=tuple(map(moved, arm.nodes))) for name, arm in self.arms.items()}
        return replace(self, arms=arms, device=device)

    @property
    def command(self) -> str:
        """The command that plays it, or the part of it that is left."""
        words = ["sapo-adversary", "experiment", self.argument]
        if len(self.arms) < len(list(_arms(self.table))):
            words += [word for arm in self.arms for word in ("--arm", arm)]
        if len(self.seeds) < len(self.table["seeds"]):
            words += ["--seeds", str(len(self.seeds))]
        if self.device != "cpu":
            words += ["--device", self.device]
        return shlex.join(words)

    def compared_with(self, arm: str) -> str | None:
        """The reference arm of this arm; None for a reference itself, or where the reference is left out."""
        reference = self.reference + self.points[arm]
        return reference if reference != arm and reference in self.arms else None

    def simulations(self, arm: str) -> list[Simulation]:
        """The runs of one arm, by seed."""
        return [replace(self.arms[arm], seed=seed) for seed in self.seeds]

    def all_simulations(self) -> list[Simulation]:
        """Every run, seed by seed, so that first comparisons come early."""
        return [replace(simulation, seed=seed) for seed in self.seeds for simulation in self.arms.values()]


def experiment_names() -> list[str]:
    """The experiments in the package."""
    return names_in(_EXPERIMENTS)


def load_experiment(name: str) -> Experiment:
    """Read an experiment of the package by name, or any by the path of its file. Raises LocalError for a bad one."""
    return load_named(_EXPERIMENTS, name, "experiment", "sapo-adversary experiment --list", partial(_experiment, name))


def _experiment(argument: str, name: str, table: Mapping[str, Any]) -> Experiment:
    file = made(_File, table, name)
    if not file.seeds:
        raise LocalError(f"{name}: seeds is empty; give at least one number")
    if len(set(file.seeds)) < len(file.seeds):
        raise LocalError(f"{name}: seeds names a number twice; give each once, because each is a swarm of its own")
    if file.reference not in file.arms:
        raise LocalError(f"{name}: its reference {file.reference!r} is none of its arms: {', '.join(file.arms)}")
    _require_effect(name, file)
    arms = list(_arms(table))
    _require_difference(name, arms)
    return Experiment(
        name=name,
        argument=argument,
        title=file.title,
        question=file.question,
        seeds=tuple(file.seeds),
        reference=file.reference,
        ceiling=file.ceiling,
        table=table,
        arms={simulation.name: simulation for _, simulation in arms},
        points={simulation.name: point for point, simulation in arms},
    )


def _require_effect(name: str, file: _File) -> None:
    """Raise LocalError for a key that would have no effect, or more than one meaning."""
    for key, belongs in _BELONGS.items():
        if key in file.simulation:
            raise LocalError(f"{name}: simulation has no {key!r}; {belongs}")
    for key, values in file.grid.items():
        if not values:
            raise LocalError(f"{name}: {key} of the grid is empty; give at least one value")
        if arm := next((arm for arm, changes in file.arms.items() if key in changes), None):
            raise LocalError(f"{name}: arm {arm} and the grid both set {key!r}; take it out of one")


def _require_difference(name: str, arms: Iterable[tuple[str, Simulation]]) -> None:
    """Raise LocalError for two arms at one point of the grid that are the same run: what differs has no effect."""
    runs: dict[tuple[str, str], str] = {}
    for point, simulation in arms:
        run = (point, simulation.digest())
        if run in runs:
            both = f"{runs[run]} and {simulation.name}"
            raise LocalError(
                f"{name}: the arms {both} are the same run; change a setting that has an effect, or remove one"
            )
        runs[run] = simulation.name


def _arms(table: Mapping[str, Any]) -> Iterator[tuple[str, Simulation]]:
    """Every arm, at every point of the grid if there is one, each after the label of its point."""
    grid = table.get("grid", {})
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        label = "".join(f", {key} {value}" for key, value in point.items())
        for name, changes in table["arms"].items():
            yield label, _simulation(name + label, table["simulation"], {**changes, **point})


def _simulation(label: str, shared: Mapping[str, Any], changes: Mapping[str, Any]) -> Simulation:
    """The shared settings with one arm's changes: a key of a node for all nodes, a table for the nodes of that role."""
    nodes = shared.get("nodes", ())
    if not isinstance(nodes, list) or not all(isinstance(node, Mapping) for node in nodes):
        raise LocalError("give nodes as a list of tables, [[simulation.nodes]]")
    roles = {str(node.get("role", "")) for node in nodes}
    if both := roles & (_NODE_KEYS | _SIMULATION_KEYS):
        raise LocalError(f"the role {min(both)!r} has the name of a key; give these nodes another role")
    for key, value in changes.items():
        if not (key in _NODE_KEYS | _SIMULATION_KEYS or (key in roles and isinstance(value, Mapping))):
            raise LocalError(f"arm {label}: {key!r} is no key of a node or a simulation, and no role of its nodes")
    everywhere = {key: value for key, value in changes.items() if key in _NODE_KEYS}
    nodes = [{**node, **everywhere, **changes.get(str(node.get("role", "")), {})} for node in nodes]
    whole = {key: value for key, value in changes.items() if key in _SIMULATION_KEYS}
    return simulation_from({**shared, **whole, "name": label, "nodes": nodes})
