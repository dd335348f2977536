"""The means of attackers of the network: addresses, hosts of their own, and hosts in the meshes of honest nodes.

libp2p is imported when a host is made, so that reading the catalogue does not need it.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from sapo_adversary.attacks.kit import Layer, Threat, peer_of
from sapo_protocol import Manifest

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Hear, Link, Peer


def nowhere(rng: random.Random) -> str:
    """An address of this machine at which no host listens."""
    return f"/ip4/127.90.{rng.randrange(256)}.{rng.randrange(1, 255)}/tcp/{rng.randrange(20_000, 30_000)}"


class GossipKit:
    """The means of one attacker: `count` hosts, the addresses of all honest nodes, and the victim among them."""

    def __init__(
        self,
        *,
        topic: str,
        asking: str,
        honest: Sequence[str],
        neighbours: Sequence[str],
        seeds: Sequence[bytes],
        places: Sequence[tuple[str, int]],
        manifest: Manifest,
        epoch: int,
        rng: random.Random,
    ) -> None:
        """`asking` is the protocol of the streams on which peers ask each other; `honest` are dialable addresses, the
        victim's last; `neighbours` are those of them that the victim dials, which can be found out; `seeds` are the
        hosts' keys and `places` their IP addresses and ports; `epoch` is the one in which they begin.
        """
        self.manifest = manifest
        self.epoch = epoch
        self.topic = topic
        self.asking = asking
        self.honest = honest
        self.victim = honest[-1]
        self.neighbours = neighbours
        self.count = len(seeds)
        self.rng = rng
        self._seeds = seeds
        self._places = places

    def peer(self, number: int, hear: "Hear") -> "AbstractAsyncContextManager[Peer]":
        """Host `number`, running while the context is entered."""
        from sapo_adversary.attacks.gossip.peer import running  # noqa: PLC0415

        return running(self._seeds[number], self._places[number], hear)


class GossipAttack(Threat):
    """One way to harm a swarm from within its network, by hosts that collude."""

    layer: ClassVar[Layer] = "gossip"

    def __init__(self, kit: GossipKit) -> None:
        self.kit = kit

    @abstractmethod
    async def play(self) -> None:
        """Attack until cancelled."""

    def report(self) -> Mapping[str, Any]:
        """The measurements that only the attackers can make."""
        return {}


_REMEMBERED = 20_000
BEAT_SECONDS = 2.0


class Sybils(GossipAttack):
    """Hosts that subscribe, send GRAFT every two seconds and forward the messages that the attack chooses.

    A host that is pruned waits until its back-off has ended. An honest peer comes back only to a mesh that is too
    small, so with each prune of a crowded mesh the hosts hold more of it.
    """

    pauses: ClassVar[tuple[float, float]] = (0.3, 0.6)
    """The least and the most seconds after which a host dials again."""

    def __init__(self, kit: GossipKit) -> None:
        super().__init__(kit)
        self._seen: list[dict[bytes, None]] = [{} for _ in range(kit.count)]

    def targets(self, number: int) -> Sequence[str]:
        """The honest nodes that a host connects with."""
        del number
        return self.kit.honest

    def passes_on(self, author: str) -> bool:
        """Return whether the host forwards a message of this author."""
        del author
        return True

    def equip(self, peer: "Peer") -> None:
        """Add other protocols to a host."""
        del peer

    async def reach(self, peer: "Peer", address: str) -> "Link":
        """A host's link to an honest node. Raises LinkLost."""
        return peer.links.get(peer_of(address)) or await peer.dial(address)

    async def greet(self, link: "Link") -> None:
        """The first bytes of a host on a connection."""
        await link.subscribe(self.kit.topic)

    async def heartbeat(self, link: "Link") -> None:
        """The packets of a host to an honest node at each heartbeat."""
        if link.may_graft:
            await link.graft(self.kit.topic)

    async def play(self) -> None:
        """Run all hosts."""
        async with trio.open_nursery() as nursery:
            for number in range(self.kit.count):
                nursery.start_soon(self._live, number)

    async def _live(self, number: int) -> None:
        """Run one host, and start it again when it ends: an honest node may end it."""
        while True:
            with suppress(Exception):  # whatever ended this life, the next one begins
                await self._serve(number)
            await trio.sleep(1)

    async def _serve(self, number: int) -> None:
        peers: list[Peer] = []

        async def hear(sender: str, rpc: Any) -> None:
            for message in rpc.publish:
                await self._heard(number, peers[0], sender, message)

        async with self.kit.peer(number, hear) as peer, trio.open_nursery() as nursery:
            peers.append(peer)
            self.equip(peer)
            for address in self.targets(number):
                nursery.start_soon(self._stay, peer, address)

    async def _stay(self, peer: "Peer", address: str) -> None:
        """Stay connected with an honest node; connect again when the link is lost."""
        while True:
            try:
                link = await self.reach(peer, address)
                await self.greet(link)
                while link.open:
                    await self.heartbeat(link)
                    await trio.sleep(BEAT_SECONDS)
                peer.links.pop(peer_of(address), None)
            except Exception:  # noqa: BLE001 - lost, and sought again
                peer.links.pop(peer_of(address), None)
            await trio.sleep(self.kit.rng.uniform(*self.pauses))

    async def _heard(self, number: int, peer: "Peer", sender: str, message: Any) -> None:
        seen = self._seen[number]
        key = message.from_id + message.seqno
        if key in seen:
            return
        seen[key] = None
        if len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        if not self.passes_on(peer.author(message)):
            return
        for honest, link in list(peer.links.items()):
            if honest != sender:
                with suppress(Exception):  # whoever keeps the link finds out
                    await link.publish(message)


class SilentSybils(Sybils):
    """Hosts that forward nothing."""

    def passes_on(self, author: str) -> bool:
        """Nothing."""
        del author
        return False
