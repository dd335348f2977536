import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sapo_adversary.attacks.gossip.addresses import nowhere
from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import Sybils

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link


class FalseAddresses(Sybils):
    """Honest nodes are told to dial addresses of a victim, or addresses at which no host listens.

    The attacker names them in its own peer records, so that nodes seek it there when it leaves, and as the peers that
    it recommends when it leaves a mesh.
    """

    id = "false-addresses"

    def __init__(self, kit: GossipKit, *, stays: int = 2, named: int = 8) -> None:
        """It stays for so many heartbeats on each connection, and names so many addresses at a time."""
        super().__init__(kit)
        self._stays = stays
        self._named = named
        self._turn = itertools.count()
        self._heartbeats: Counter[Link] = Counter()

    def _addresses(self) -> Sequence[str]:
        return [nowhere(self.kit.rng) for _ in range(self._named)]

    async def greet(self, link: "Link") -> None:
        """Send a peer record with the false addresses, before anything else."""
        await link.say_where(self._addresses())
        await link.subscribe(self.kit.topic)

    async def heartbeat(self, link: "Link") -> None:
        """Recommend other peers, and leave after some heartbeats."""
        await link.graft(self.kit.topic)
        await link.exchange(self.kit.topic, next(self._turn).to_bytes(8), self._addresses())
        self._heartbeats[link] += 1
        if self._heartbeats[link] == self._stays:
            del self._heartbeats[link]
            await link.close()
