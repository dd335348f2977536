"""Runs on a Ray cluster of two workers, one of which is killed."""

from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

from sapo_adversary.simulator.engine import ThisMachine
from sapo_adversary.simulator.runs import load_record, play_all
from sapo_adversary.simulator.simulation import NodeSpec, Simulation

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'sapo-node[cluster]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SWARM = Simulation(
    "swarm", (NodeSpec(count=4, round_seconds=2.0),), seconds=60, learner="bandit", audited=True, final_questions=2
)
SEEDS = [replace(SWARM, seed=seed) for seed in range(1, 9)]


def told(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what depends on the machine."""
    return {key: value for key, value in record.items() if key != "timing"}


def test_a_cluster_of_which_a_machine_dies_plays_what_this_machine_plays(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster as Machines

    from sapo_adversary.simulator.cluster import Cluster

    machines = Machines(initialize_head=True, head_node_args={"num_cpus": 0})
    workers = [machines.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=machines.address, log_to_driver=False)
    there, here = tmp_path / "there", tmp_path / "here"
    try:
        quiet = Console(quiet=True)
        playing = Thread(
            target=play_all, args=(SEEDS, there), kwargs={"policies": tmp_path, "engine": Cluster(), "console": quiet}
        )
        playing.start()
        while len(list(there.glob("*.json"))) < 2:
            playing.join(0.1)
            assert playing.is_alive()
        machines.remove_node(workers[0], allow_graceful=False)
        playing.join()
    finally:
        ray.shutdown()
        machines.shutdown()
    play_all(SEEDS, here, policies=tmp_path, engine=ThisMachine(), console=quiet)
    assert [told(load_record(there, each)) for each in SEEDS] == [told(load_record(here, each)) for each in SEEDS]
