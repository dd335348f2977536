"""Small swarms under attack, and what shows in their records."""

from collections.abc import Mapping
from typing import Any

from sapo_adversary.simulator.simulation import AttackerSpec, NodeSpec, Simulation
from sapo_adversary.simulator.swarm import simulate


def attacked(
    attack: str,
    *,
    honest: int = 4,
    seconds: float = 40.0,
    round_seconds: float = 2.0,
    epoch_seconds: int = 20,
    degree: int = 0,
    trusted: bool = True,
    inline_bytes: int = 0,
    without: tuple[str, ...] = (),
    **band: Any,
) -> Any:
    """The record of a few nodes that know each other, and two attackers; `band` is of AttackerSpec."""
    simulation = Simulation(
        f"{attack} against a few",
        nodes=(NodeSpec(count=honest, round_seconds=round_seconds),),
        seconds=seconds,
        learner="bandit",
        epoch_seconds=epoch_seconds,
        max_rounds=20,
        degree=degree,
        trusted=trusted,
        inline_bytes=inline_bytes,
        pulls=bool(inline_bytes),
        audited=True,
        attackers=(AttackerSpec(attack, **{"count": 2, **band}),),
        without=without,
    )
    return simulate(simulation)


def violations(record: Mapping[str, Any]) -> int:
    """Groups trained on by mistake, over all nodes."""
    return sum(sum(node["findings"]["violations"].values()) for node in record["nodes"])


def refused(record: Mapping[str, Any], reason: str) -> int:
    """How often anything was refused for a reason, over all nodes."""
    return sum(node["refused"].get(reason, 0) for node in record["nodes"])


def state(record: Mapping[str, Any], role: str, name: str) -> float:
    """Share of the peers of a role that have a state at the end, over all nodes."""
    counts = [node["states"]["last"][role] for node in record["nodes"]]
    return sum(count.get(name, 0) for count in counts) / sum(sum(count.values()) for count in counts)


def poison(record: Mapping[str, Any], attack: str) -> float:
    """The attackers' share of everything that was trained on."""
    weights = [node["findings"]["mass"] for node in record["nodes"]]
    return sum(by_role.get(attack, 0.0) for by_role in weights) / sum(sum(by_role.values()) for by_role in weights)


def stored(record: Mapping[str, Any]) -> int:
    """Bytes in the largest database at the end."""
    return max(node["stored"] for node in record["nodes"])


def exchanged(record: Mapping[str, Any]) -> int:
    """Groups of others that were trained on, over all nodes."""
    return sum(sum(node["rounds"]["external"]) for node in record["nodes"])
