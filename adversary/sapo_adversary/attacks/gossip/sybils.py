"""Hosts that sit in the meshes of honest nodes. Attacks derive from them and change one thing."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from sapo_adversary.attacks.gossip.addresses import peer_of
from sapo_adversary.attacks.gossip.kit import GossipAttack, GossipKit

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link, Peer

_REMEMBERED = 20_000
BEAT_SECONDS = 2.0


class Sybils(GossipAttack):
    """Hosts that subscribe, send GRAFT every two seconds and forward the messages that the attack chooses."""

    def __init__(self, kit: GossipKit) -> None:
        super().__init__(kit)
        self._seen: list[dict[bytes, None]] = [{} for _ in range(kit.count)]

    def targets(self, number: int) -> Sequence[str]:
        """The honest nodes that a host connects with."""
        del number
        return self.kit.honest

    def passes_on(self, author: str) -> bool:
        """Whether a message of this author is forwarded."""
        del author
        return True

    def equip(self, peer: "Peer") -> None:
        """Add to a host what it does besides gossip."""
        del peer

    async def reach(self, peer: "Peer", address: str) -> "Link":
        """A host's link to an honest node. Raises LinkLost."""
        return peer.links.get(peer_of(address)) or await peer.dial(address)

    async def greet(self, link: "Link") -> None:
        """The first bytes of a host on a connection."""
        await link.subscribe(self.kit.topic)

    async def heartbeat(self, link: "Link") -> None:
        """The packets of a host to an honest node at each heartbeat."""
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
            await trio.sleep(self.kit.rng.uniform(0.3, 0.6))

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
