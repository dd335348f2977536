"""The means of attackers of the network: the addresses of honest nodes, and their own hosts.

libp2p is imported where a host is made, so that the catalogue can be read without it.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from sapo_adversary.attacks.kit import Layer, Threat
from sapo_protocol import Manifest

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Hear, Peer


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
