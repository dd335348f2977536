"""Runs on a Ray cluster, one core each. A run whose machine or process fails is played again elsewhere.

Every machine must have this version of the package. A run gives the same record wherever it is played.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
from ray.exceptions import RayError

from sapo_adversary.simulator.engine import Played, Record, Tick, play_one
from sapo_adversary.simulator.simulation import Simulation
from sapo_protocol import LocalError

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports to its makers
_AGAIN = 10
"""Attempts to restart a run that a lost machine or process ended."""

Files = Mapping[str, bytes]
"""By path within a folder."""


class Cluster:
    """Plays runs on the cluster that `RAY_ADDRESS` names or this machine is in; if there is none, on a new
    one here.
    """

    def __init__(self, jobs: int | None = None) -> None:
        """`jobs` is the greatest number of runs at a time; by default one per core of the cluster."""
        self._jobs = jobs

    def play(self, simulations: Sequence[Simulation], policies: Path, tick: Tick) -> Played:
        """See `Engine.play`. Raises LocalError if there is no such cluster, or it loses a run too often."""
        try:
            if not ray.is_initialized():
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
            yield from self._play(simulations, ray.put(_pack(simulations, policies)), tick)
        except (RayError, ConnectionError) as error:
            raise LocalError(f"the cluster failed: {error}") from error

    def _play(self, simulations: Sequence[Simulation], packed: Any, tick: Tick) -> Played:
        models = any(simulation.learner == "model" for simulation in simulations)
        # A process that trained models is not used again: its memory does not come back.
        there = ray.remote(num_cpus=1, max_retries=_AGAIN, max_calls=1 if models else 0)(_play_there)
        waiting = list(reversed(simulations))
        playing: dict[Any, Simulation] = {}
        while waiting or playing:
            while waiting and (self._jobs is None or len(playing) < self._jobs):
                simulation = waiting.pop()
                playing[there.remote(simulation, packed, version("sapo-node"))] = simulation
            [over], _ = ray.wait(list(playing), num_returns=1)
            simulation = playing.pop(over)
            record = ray.get(over)
            tick(simulation.total_rounds)
            yield simulation, record


def _pack(simulations: Sequence[Simulation], policies: Path) -> Files:
    """The prepared policies that the simulations name."""
    return {
        str(file.relative_to(policies)): file.read_bytes()
        for name in sorted({name for simulation in simulations for name in simulation.prepared_policies})
        for file in sorted((policies / name).rglob("*"))
        if file.is_file()
    }


def _play_there(simulation: Simulation, packed: Files, wanted: str) -> Record:
    """Play one run on a machine of the cluster."""
    if (here := version("sapo-node")) != wanted:
        raise LocalError(f"a machine of the cluster has sapo-node {here}: install {wanted}, as on this one")
    with TemporaryDirectory() as folder:
        for name, data in packed.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return play_one(simulation, Path(folder), lambda _: None)
