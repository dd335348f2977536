import trio

from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import Sybils


class CovertFlash(Sybils):
    """Peers behave well in every mesh for a long time; then all of them drop every message at once."""

    id = "covert-flash"

    def __init__(self, kit: GossipKit, *, behaves: float = 12.0) -> None:
        """They forward every message for this number of seconds."""
        super().__init__(kit)
        self._behaves = behaves
        self._until = 0.0

    async def play(self) -> None:
        """Note the start, and run all hosts."""
        self._until = trio.current_time() + self._behaves
        await super().play()

    def passes_on(self, author: str) -> bool:
        """Every message, until the time is over."""
        del author
        return trio.current_time() < self._until
