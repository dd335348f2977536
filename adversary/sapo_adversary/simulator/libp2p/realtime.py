"""Plays a simulation on real libp2p and real time: the nodes that `swarm` plays in memory, each with its own network on
loopback.

Two runs of one simulation differ: sockets and other work of the machine decide which message comes first.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import trio

from sapo_adversary.ablations.defences import ablated
from sapo_adversary.simulator.libp2p.horde import Horde, unleash
from sapo_adversary.simulator.libp2p.loopback import Loopback
from sapo_adversary.simulator.member import Member, Progress, Shared, members_of, record_of
from sapo_adversary.simulator.oracle import HONEST, Audit
from sapo_adversary.simulator.simulation import Simulation
from sapo_adversary.simulator.swarm import FIRST_EPOCH, identities_of, manifest_of
from sapo_node.net import host
from sapo_node.processes.clock import TrioClock
from sapo_protocol import LocalError, Manifest

_PATIENCE = 4
"""A run may take this many times its seconds, once the attackers are ready; then it is given up."""


def simulate_realtime(simulation: Simulation, *, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Play a simulation and return its record, which has what was seen of the network under `gossip`.

    Raises LocalError if the machine is too busy to play it in time.
    """
    if simulation.learner != "bandit":
        raise LocalError(f"simulation {simulation.name}: on libp2p nodes train the stand-in alone, learner = 'bandit'")
    manifest = manifest_of(simulation)
    with _slots(simulation.slots):
        members, loopback = trio.run(partial(_play_all, simulation, manifest, progress))
    record = record_of(simulation, members)
    for member, node in zip(members, record["nodes"], strict=True):
        node["gossip"] = loopback.watch.record_of(member.peer)
    return {**record, "gossip": loopback.watch.record()}


@contextmanager
def _slots(count: int) -> Iterator[None]:
    """Set the number of connections that a node holds, until the end of the block."""
    own = host.CONNECTIONS
    host.CONNECTIONS = count or own
    try:
        yield
    finally:
        host.CONNECTIONS = own


async def _play_all(simulation: Simulation, manifest: Manifest, progress: Progress) -> tuple[list[Member], Loopback]:
    random.seed(f"library/{simulation.seed}")  # libp2p draws from it: whom to graft, whom to prune
    undefended = ablated(simulation.without)
    scorer = undefended.scorer()
    clock = TrioClock(manifest.genesis + FIRST_EPOCH * manifest.epoch_seconds - trio.current_time())
    identities = identities_of(simulation)
    roles = {identity.peer_id: HONEST for identity in identities}
    audit = Audit(manifest, scorer, roles) if simulation.audited else None
    loopback = Loopback(simulation, manifest, identities, undefended.network)
    hordes = [Horde(simulation, number, loopback) for number in range(len(simulation.attackers))]
    loopback.recommend([address for horde in hordes if horde.spec.dialled for address in horde.addresses])
    members = members_of(
        Shared(
            simulation=simulation,
            manifest=manifest,
            clock=clock,
            scorer=scorer,
            hub=loopback,
            identities=identities,
            undefended=undefended,
            audit=audit,
        )
    )
    roles |= {peer: horde.spec.attack for horde in hordes for peer in horde.peers}
    async with trio.open_nursery() as attacking:
        await unleash(hordes, loopback, attacking)
        with trio.move_on_after(_PATIENCE * simulation.seconds) as patience:
            async with trio.open_nursery() as playing:
                for member in members:
                    playing.start_soon(member.play, progress)
        loopback.watch.end()
        attacking.cancel_scope.cancel()
    if patience.cancelled_caught:
        raise LocalError(
            f"{simulation.name} took {_PATIENCE} times its {simulation.seconds:g} s: play it with less beside"
        )
    return members, loopback
