"""The honest nodes of a simulation on real libp2p: each listens on its own address of this machine."""

import os
import random
import socket
from collections.abc import Mapping, Sequence

import trio

from sapo_adversary.simulator.libp2p.honest import HonestNetwork, WatchedNetwork
from sapo_adversary.simulator.libp2p.watch import Watch
from sapo_adversary.simulator.simulation import Simulation
from sapo_node.net.interface import Admit, Channel, Notify, Requests
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences, NetworkSettings
from sapo_node.storage.keys import Identity
from sapo_protocol import LocalError, Manifest, pull_protocol, rollouts_topic

ATTACKERS_FROM = 200
"""The second number of attackers' IP addresses, at least."""
_HONEST_FROM = 10
"""The network of the first honest node; each has another one."""


class Loopback:
    """The addresses of all honest nodes, their networks, and what is measured of them."""

    def __init__(
        self,
        simulation: Simulation,
        manifest: Manifest,
        identities: Sequence[Identity],
        defences: NetworkDefences = NETWORK_DEFENDED,
    ) -> None:
        self.manifest = manifest
        self.topic = rollouts_topic(manifest, 0)
        self.asking = pull_protocol(manifest)
        self.places = {each.peer_id: free_place(_HONEST_FROM + number) for number, each in enumerate(identities)}
        self.watch = Watch(list(self.places))
        self.ready = trio.Event()
        """Set when the attackers are: honest nodes start then."""
        self._restarts = simulation.restarts
        self._defences = defences
        self._recommended: tuple[str, ...] = ()
        self._network_id = manifest.network_id.hex()
        self._bootstraps = {
            each.peer_id: tuple(self.address_of(other.peer_id) for other in _earlier(simulation, identities, number))
            for number, each in enumerate(identities)
        }

    def recommend(self, addresses: Sequence[str]) -> None:
        """Have all honest nodes that join from now on dial these addresses as well."""
        self._recommended = (*self._recommended, *addresses)

    def address_of(self, peer: str) -> str:
        """The address of an honest node."""
        return address(self.places[peer], peer)

    @property
    def addresses(self) -> list[str]:
        """All honest nodes'."""
        return [self.address_of(peer) for peer in self.places]

    def knows(self, host: str) -> bool:
        """Return whether an honest node or an attacker has this IP address."""
        return int(host.split(".")[1]) >= ATTACKERS_FROM or any(host == place for place, _ in self.places.values())

    @property
    def victims_bootstraps(self) -> Sequence[str]:
        """The bootstrap addresses of the last node, which is the victim."""
        return self._bootstraps[list(self.places)[-1]]

    def join(
        self,
        identity: Identity,
        channels: Mapping[str, Channel],
        *,
        admit: Admit,
        notify: Notify,
        requests: Requests | None,
    ) -> HonestNetwork:
        """The network of an honest node. Its bootstrap addresses are fixed."""
        peer_id = identity.peer_id
        settings = NetworkSettings(
            seed=identity.seed,
            network_id=self._network_id,
            listen=(self.address_of(peer_id).rpartition("/p2p/")[0],),
            bootstrap=(*self._bootstraps[peer_id], *self._recommended),
            discover=False,
            defences=self._defences,
        )

        def live(settings: NetworkSettings) -> WatchedNetwork:
            return WatchedNetwork(
                settings,
                peer_id,
                channels,
                topic=self.topic,
                watch=self.watch,
                knows=self.knows,
                requests=requests,
                admit=admit,
                notify=notify,
            )

        restarts = self._restarts if peer_id == list(self.places)[-1] else 0.0
        return HonestNetwork(self.ready, settings, live, restarts)

    def begin(self) -> None:
        """Let the honest nodes start, and count from here."""
        self.watch.begin()
        self.ready.set()


def _earlier(simulation: Simulation, identities: Sequence[Identity], number: int) -> Sequence[Identity]:
    """The nodes that a node gets as its bootstrap peers: `degree` of those before it, or all."""
    others = identities[:number]
    rng = random.Random(f"{simulation.seed}/{number}")  # noqa: S311 - simulation
    return rng.sample(others, simulation.degree) if 0 < simulation.degree < len(others) else others


def address(place: tuple[str, int], peer: str) -> str:
    """Return the address of a peer."""
    host, port = place
    return f"/ip4/{host}/tcp/{port}/p2p/{peer}"


def free_place(network: int, block: int = 0) -> tuple[str, int]:
    """An address of this machine in the network 127.`network` (/16), in the address block (/24) of this number, and a
    free port there. Raises LocalError on a system that gives a process 127.0.0.1 alone.
    """
    host = f"127.{network}.{_own_half(block)}"
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, int(probe.getsockname()[1])
    except OSError as error:
        raise LocalError(f"cannot listen on {host} ({error.strerror}): play attacks on the network on Linux") from error


def _own_half(block: int) -> str:
    """The last half of this process's addresses, so that runs side by side use other addresses."""
    return f"{(os.getpid() >> 8) + block & 255}.{1 + os.getpid() % 254}"
