from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import BEAT_SECONDS, SilentSybils


class Eclipse(SilentSybils):
    """Attackers take all connections and mesh places of one node, so that it receives and sends nothing.

    They are more than the node has slots, take each slot that becomes free, and forward nothing. With `at_once`, only
    so many hosts run at one time: where the node closes a connection, a host with another key and address takes its
    turn.
    """

    id = "eclipse"

    def __init__(self, kit: GossipKit, *, at_once: int = 0) -> None:
        super().__init__(kit)
        self._at_once = at_once
        self._waiting = deque(range(kit.count))
        self._turns = 0

    def targets(self, number: int) -> Sequence[str]:
        """Only the victim."""
        del number
        return (self.kit.victim,)

    async def play(self) -> None:
        """Run all hosts, or `at_once` of them in turns."""
        if not self._at_once:
            await super().play()
        async with trio.open_nursery() as nursery:
            for _ in range(self._at_once):
                nursery.start_soon(self._take_turns)

    async def _take_turns(self) -> None:
        while True:
            number = self._waiting.popleft()
            with suppress(Exception):  # an honest node may end a host
                await self._hold(number)
            self._waiting.append(number)
            await trio.sleep(self.kit.rng.uniform(0.3, 0.6))

    async def _hold(self, number: int) -> None:
        """Hold one connection with the victim until it is closed."""

        async def hear(_sender: str, _rpc: Any) -> None:
            """Forward nothing."""

        async with self.kit.peer(number, hear) as peer:
            link = await peer.dial(self.kit.victim)
            self._turns += 1
            await self.greet(link)
            while link.open:
                await self.heartbeat(link)
                await trio.sleep(BEAT_SECONDS)

    def report(self) -> dict[str, Any]:
        """How many connections hosts that take turns had."""
        return {"turns": self._turns} if self._at_once else {}
