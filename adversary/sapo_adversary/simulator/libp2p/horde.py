"""The attackers on libp2p, in a process of their own: they must neither slow the honest nodes' clock nor count as their
CPU time.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.simulator.libp2p.loopback import ATTACKERS_FROM, Loopback, address, free_place
from sapo_adversary.simulator.simulation import AttackerSpec, Simulation
from sapo_adversary.simulator.swarm import FIRST_EPOCH
from sapo_node.storage.keys import Identity
from sapo_protocol import LocalError

_START_SECONDS = 60.0
_END_SECONDS = 20.0
_NETWORKS = 4
"""Networks (/16) among which their addresses are spread, each in an address block (/24) of its own."""


class Horde:
    """The hosts of one `AttackerSpec`."""

    def __init__(self, simulation: Simulation, number: int, loopback: Loopback) -> None:
        """`number` is the place of the specification among the simulation's attackers."""
        self.spec: AttackerSpec = simulation.attackers[number]
        self._loopback = loopback
        seeds = [_seed(simulation, number, place) for place in range(self.spec.count)]
        self.peers = [Identity(Ed25519PrivateKey.from_private_bytes(seed)).peer_id for seed in seeds]
        places = [
            free_place(ATTACKERS_FROM + place % _NETWORKS, block=place // _NETWORKS) for place in range(self.spec.count)
        ]
        self.addresses = [address(place, peer) for place, peer in zip(places, self.peers, strict=True)]
        self._told = {
            "attack": self.spec.attack,
            "options": dict(self.spec.options),
            "topic": loopback.topic,
            "asking": loopback.asking,
            "honest": loopback.addresses,
            "neighbours": loopback.victims_bootstraps,
            "manifest": loopback.manifest.encoded.hex(),
            "epoch": FIRST_EPOCH,
            "seeds": [seed.hex() for seed in seeds],
            "places": places,
            "seed": f"attack/{simulation.seed}/{number}",
            "seconds": 4 * simulation.seconds,
        }

    async def play(self, ready: trio.Event) -> None:
        """Start the process, set `ready`, attack when the honest nodes start, and end when cancelled."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-m", "sapo_adversary.attacks.gossip"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lines = _Lines(process.stdout)
        try:
            await process.stdin.send_all(json.dumps(self._told).encode() + b"\n")
            with trio.fail_after(_START_SECONDS):
                await lines.event("ready")
            ready.set()
            await self._loopback.ready.wait()
            await trio.sleep(self.spec.joins)
            await process.stdin.send_all(b"go\n")
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(_END_SECONDS) as scope:
                scope.shield = True
                await process.stdin.aclose()
                over = await lines.event("over")
                self._loopback.watch.reports.append(over["report"])
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


class _Lines:
    """The events that the process prints."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._rest = b""

    async def event(self, name: str) -> dict[str, Any]:
        """The next event, which must be of this name. Raises LocalError if the process ends or says another."""
        while b"\n" not in self._rest:
            data = await self._stream.receive_some()
            if not data:
                raise LocalError("the attackers' process ended early; see what it wrote above")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        if event["event"] != name:
            raise LocalError(f"the attackers' process said {event['event']} in place of {name}")
        return event


def _seed(simulation: Simulation, number: int, place: int) -> bytes:
    return hashlib.sha256(f"sapo/attacker/{simulation.seed}/{number}/{place}".encode()).digest()


async def unleash(hordes: Sequence[Horde], loopback: Loopback, nursery: trio.Nursery) -> None:
    """Start all attackers, and the honest nodes as soon as all attackers are ready."""
    waiting = [trio.Event() for _ in hordes]
    for horde, ready in zip(hordes, waiting, strict=True):
        nursery.start_soon(horde.play, ready)
    for ready in waiting:
        await ready.wait()
    loopback.begin()
