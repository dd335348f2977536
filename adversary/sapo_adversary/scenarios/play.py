"""Plays scenarios: each arm at each share and seed once, and judges the records."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sapo_adversary.files import results_in
from sapo_adversary.scenarios.outcome import Outcome, outcome_of
from sapo_adversary.scenarios.scenario import Arm, Scenario
from sapo_adversary.simulator.engine import Engine, ThisMachine
from sapo_adversary.simulator.runs import load_record, play_all, record_path
from sapo_adversary.simulator.simulation import Simulation

Part = tuple[Scenario, float]
"""A scenario at one share of attackers."""


def play(
    parts: Sequence[Part],
    seeds: Sequence[int],
    records: Path,
    *,
    policies: Path,
    engine: Engine,
    console: Console,
) -> list[Outcome]:
    """Play the runs that have no record in the folder, then judge."""
    wanted = {
        simulation.digest(): simulation for seed in seeds for part in parts for simulation in _runs(part, seed).values()
    }
    realtime = [simulation for simulation in wanted.values() if simulation.network == "libp2p"]
    virtual = [simulation for simulation in wanted.values() if simulation.network == "memory"]
    play_all(virtual, records, policies=policies, engine=engine, console=console)
    # Each needs a machine for itself, with nothing beside it.
    play_all(realtime, records, policies=policies, engine=ThisMachine(jobs=1), console=console)
    return [_judged(part, seeds, records) for part in parts]


def recorded(parts: Sequence[Part], seeds: Sequence[int], records: Path) -> list[Outcome]:
    """Play nothing, and judge the runs that have a record in the folder: of each part the seeds with all its arms."""

    def played(part: Part, seed: int) -> bool:
        return all(record_path(records, simulation).exists() for simulation in _runs(part, seed).values())

    found = [(part, [seed for seed in seeds if played(part, seed)]) for part in parts]
    return [_judged(part, have, records) for part, have in found if have]


def _runs(part: Part, seed: int) -> dict[Arm, Simulation]:
    scenario, share = part
    return {arm: scenario.simulation(arm, share=share, seed=seed) for arm in scenario.arms}


def _judged(part: Part, seeds: Sequence[int], records: Path) -> Outcome:
    played = [_runs(part, seed) for seed in seeds]
    found = {arm: [load_record(records, runs[arm]) for runs in played] for arm in part[0].arms}
    with results_in(records, "remove them, and new runs"):
        return outcome_of(*part, seeds, found)
