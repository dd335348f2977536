"""A training swarm of three on a bad machine: nothing acknowledged is lost, nothing is trained or published twice."""

import shutil

import pytest

from faulty_swarm import FAULTS, drawn, play_faults

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the faults of the disk")
FIRST = ("power cut", "kill", "disk full", "disk full in the WAL", "slow disk", "clock jump")
"""This power cut falls between a checkpoint and the next flush of the database."""


@pytest.mark.slow
def test_a_swarm_survives_each_fault_once(memory_folder):
    ended = play_faults(memory_folder, FIRST, seed=0)
    assert ended.keys() == set(FAULTS)
    assert ended["kill"] == ended["power cut"] == {"killed": 1}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(10))
def test_a_swarm_survives_twenty_faults(memory_folder, seed):
    ended = play_faults(memory_folder, drawn(seed), seed)
    assert sum(sum(ways.values()) for ways in ended.values()) == 20
