from typing import TYPE_CHECKING

import trio

from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import Sybils

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link

_BACK_OFF_SECONDS = 70.0


class Freeloader(Sybils):
    """Peers sit in every mesh, receive messages and forward almost none.

    They keep every other rule.
    """

    id = "freeloader"

    def __init__(self, kit: GossipKit, *, forwards: float = 0.0) -> None:
        """`forwards` is the share of messages that they forward."""
        super().__init__(kit)
        self._forwards = forwards
        self._asked: dict[Link, float] = {}

    def passes_on(self, author: str) -> bool:
        """A share of the messages, at random."""
        del author
        return self.kit.rng.random() < self._forwards

    async def heartbeat(self, link: "Link") -> None:
        """Send GRAFT, not earlier than the back-off allows."""
        if trio.current_time() >= self._asked.get(link, 0.0):
            self._asked[link] = trio.current_time() + _BACK_OFF_SECONDS
            await super().heartbeat(link)
