"""Measures what a mesh of four saves beside the mesh of six. Sixteen nodes on loopback play with each in turn."""

import os
import random
import time
from statistics import fmean, median

import pytest
import trio
from nacl.signing import SigningKey

from sapo_node.gossip import mesh
from sapo_node.gossip.machine import Machine
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_protocol.keys import peer_id

pytestmark = pytest.mark.bench

SWARM = "ab" * 32
TOPIC = f"/sapo/2/{SWARM}/rollouts/0"
NODES, DIALLED, MESSAGES, BYTES = 16, 6, 160, 4_096
SETTLING_SECONDS, PAUSE_SECONDS, LAST_SECONDS = 20.0, 0.1, 5.0
MESHES = {"six": (6, 4, 10), "four": (4, 3, 8)}
"""DEGREE, LOW and HIGH."""


async def played(rng, copies):
    """Copies and CPU milliseconds of each message at each node, and milliseconds until the middle and the last node.

    `copies` gets an item for each copy that comes.
    """
    sent, heard = {}, []
    nodes = []

    async def take(_sender, data):
        heard.append((data, trio.current_time() - sent[data]))
        return Verdict.ACCEPT

    async with trio.open_nursery() as nursery:
        for number in range(1, NODES + 1):
            known = [each.addresses[0] for each in rng.sample(nodes, min(len(nodes), DIALLED))]
            seed = bytes([number]) * 32
            settings = NetworkSettings(
                seed, SWARM, listen=("/ip4/127.0.0.1/tcp/0",), bootstrap=tuple(known), discover=False
            )
            name = peer_id(bytes(SigningKey(seed).verify_key))
            channels = {TOPIC: Channel(take, 2**20)}
            network = Libp2pNetwork(settings, name, channels, admit=lambda _: True, notify=lambda _: None)
            await nursery.start(network.run)
            nodes.append(network)
        await trio.sleep(SETTLING_SECONDS)
        meshes = [len(each._session.machine.topics[TOPIC.encode()].mesh) for each in nodes]
        copies.clear()
        before = time.process_time()
        for _ in range(MESSAGES):
            data = os.urandom(BYTES)
            sent[data] = trio.current_time()
            await rng.choice(nodes).publish(TOPIC, data)
            await trio.sleep(PAUSE_SECONDS)
        await trio.sleep(LAST_SECONDS)
        spent = time.process_time() - before
        nursery.cancel_scope.cancel()
    last = {}
    for data, delay in heard:
        last[data] = max(delay, last.get(data, 0.0))
    of_each = MESSAGES * (NODES - 1)
    return {
        "mesh": fmean(meshes),
        "arrived": len(heard) / of_each,
        "copies": len(copies) / of_each,
        "cpu": 1e3 * spent / of_each,
        "half": 1e3 * median(delay for _, delay in heard),
        "last": 1e3 * fmean(last.values()),
    }


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_mesh_of_four_against_one_of_six(monkeypatch, seed):
    consider, copies = Machine._consider, []

    def counted(self, *args):
        copies.append(1)
        return consider(self, *args)

    monkeypatch.setattr(Machine, "_consider", counted)
    for name, (degree, low, high) in MESHES.items():
        for constant, value in (("DEGREE", degree), ("LOW", low), ("HIGH", high)):
            monkeypatch.setattr(mesh, constant, value)
        found = await played(random.Random(seed), copies)
        print(f"\nmesh of {name}, seed {seed}: " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()))
