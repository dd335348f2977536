import trio

from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import Sybils


class CovertFlash(Sybils):
    """Good peers for long, in every mesh; then all of them drop every message at once."""

    id = "covert-flash"

    def __init__(self, kit: GossipKit, *, behaves: float = 12.0) -> None:
        """They pass everything on for so many seconds."""
        super().__init__(kit)
        self._behaves = behaves
        self._until = 0.0

    async def play(self) -> None:
        """As all of them do, with an eye on the clock."""
        self._until = trio.current_time() + self._behaves
        await super().play()

    def passes_on(self, author: str) -> bool:
        """Everything, until the moment comes."""
        del author
        return trio.current_time() < self._until
