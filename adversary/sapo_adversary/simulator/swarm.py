"""Plays a simulation on virtual time, with every node's real ingest, ledger, verification, pool, sampler and
learner.

The same simulation gives the same record, byte for byte, except for what is under `timing`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.ablations.defences import Undefended, ablated
from sapo_adversary.attacks.poison import habits_sought
from sapo_adversary.simulator.attackers import Band
from sapo_adversary.simulator.crowd import Crowd, hub_of
from sapo_adversary.simulator.learners import set_up
from sapo_adversary.simulator.member import Member, Progress, Shared, members_of, record_of
from sapo_adversary.simulator.memo import memoised
from sapo_adversary.simulator.oracle import HONEST, Audit
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.app.config import load_config
from sapo_node.processes.clock import TrioClock
from sapo_node.storage.keys import Identity
from sapo_node.storage.row_files import open_rows
from sapo_protocol import Manifest, load_manifest

FIRST_EPOCH = 10
"""The epoch in which every simulation begins."""


def simulate(simulation: Simulation, *, policies: Path = Path(), progress: Progress = lambda _: None) -> dict[str, Any]:
    """Play a simulation from beginning to end and return its record; `policies` is the folder of prepared policies."""
    manifest = manifest_of(simulation)
    clock = trio.testing.MockClock(autojump_threshold=0)
    undefended = ablated(simulation.without)
    with set_up(simulation), memoised(undefended.parts.wire) as wire:
        undefended = replace(undefended, parts=replace(undefended.parts, wire=wire))
        play = partial(_play_all, simulation, manifest, undefended)
        members = trio.run(partial(play, policies=policies, progress=progress), clock=clock)
    return record_of(simulation, members)


async def _play_all(
    simulation: Simulation, manifest: Manifest, undefended: Undefended, *, policies: Path, progress: Progress
) -> list[Member]:
    scorer = undefended.scorer(open_rows(manifest.tasks, load_config(None).files_of(manifest.tasks)))
    hub = hub_of(simulation)
    clock = TrioClock(manifest.genesis + FIRST_EPOCH * manifest.epoch_seconds)
    identities = identities_of(simulation)
    roles = {identity.peer_id: HONEST for identity in identities}
    audit = Audit(manifest, scorer, roles, _sought(simulation)) if simulation.audited else None
    crowd = (
        Crowd(
            simulation,
            manifest,
            scorer=scorer,
            hub=hub,
            clock=clock,
            audit=audit,
            wire=undefended.parts.wire,
        )
        if simulation.crowd
        else None
    )
    members = members_of(
        Shared(
            simulation=simulation,
            manifest=manifest,
            clock=clock,
            scorer=scorer,
            hub=hub,
            identities=identities,
            undefended=undefended,
            audit=audit,
            policies=policies,
        )
    )
    bands = [
        Band(simulation, number, manifest, scorer=scorer, hub=hub, clock=clock, crowd=crowd)
        for number in range(len(simulation.attackers))
    ]
    roles |= {key.peer: HONEST for key in crowd.keys} if crowd else {}
    roles |= {key.peer: band.spec.attack for band in bands for key in band.keys}
    async with trio.open_nursery() as around:
        if crowd:
            around.start_soon(crowd.play, [member.learner for member in members])
        for band in bands:
            around.start_soon(band.play)
        async with trio.open_nursery() as playing:
            for member in members:
                playing.start_soon(member.play, progress)
        around.cancel_scope.cancel()
    return members


def _sought(simulation: Simulation) -> dict[str, Callable[[str], float]]:
    """The habits to measure; only language models have any."""
    options: dict[str, Any] = {}
    for band in simulation.attackers:
        options |= band.options
    return habits_sought(options) if simulation.learner == "model" else {}


def manifest_of(simulation: Simulation) -> Manifest:
    """The swarm's, on the simulation's clock."""
    manifest = load_manifest(simulation.swarm)
    return replace(
        manifest,
        inline_bytes=simulation.inline_bytes or manifest.max_message_bytes,
        epoch_seconds=simulation.epoch_seconds or manifest.epoch_seconds,
        max_rounds=simulation.max_rounds or manifest.max_rounds,
        tasks=tuple(replace(spec, levels=simulation.levels.get(spec.dataset, spec.levels)) for spec in manifest.tasks),
    )


def identities_of(simulation: Simulation) -> list[Identity]:
    """The keys of all nodes, by number."""
    return [identity_of(simulation, number) for number in range(len(simulation.members))]


def identity_of(simulation: Simulation, number: int) -> Identity:
    """The key of a node: of the seed and its number alone, so that arms share their tasks."""
    secret = hashlib.sha256(f"sapo/simulated/{simulation.seed}/{number}".encode()).digest()
    return Identity(Ed25519PrivateKey.from_private_bytes(secret))
