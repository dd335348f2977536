"""Attacks that keep messages from a node, or take its connections."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from sapo_adversary.attacks.gossip.kit import BEAT_SECONDS, GossipKit, SilentSybils, Sybils
from sapo_adversary.attacks.kit import peer_of


class Eclipse(SilentSybils):
    """Attackers take all connections and mesh places of one node, so that it receives and sends nothing.

    They are more than the node has slots, take each slot that becomes free, and forward nothing. With `at_once`, that
    number of hosts runs at a time: when the node closes a connection, a host with another key and address takes its
    turn.
    """

    id = "eclipse"
    pauses = (0.05, 0.1)

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
        """Return the number of connections that hosts in turns had."""
        return {"turns": self._turns} if self._at_once else {}


class ColdBoot(SilentSybils):
    """The attackers run before all honest nodes, sit in every mesh and forward nothing.

    They dial each honest node as soon as it listens, while it knows no other honest node.
    """

    id = "cold-boot"


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


class Censorship(Sybils):
    """Attackers around a node forward every message except those of that node.

    They crowd into the meshes of the victim and of the nodes that it dials, so that a router that sends its own
    messages only to its mesh reaches no other peer. The first attacker is connected with all nodes and forwards as
    honest peers do.
    """

    id = "censorship"

    def targets(self, number: int) -> Sequence[str]:
        """The victim and its neighbours; for the first attacker all honest nodes."""
        return self.kit.honest if number == 0 else (self.kit.victim, *self.kit.neighbours)

    def passes_on(self, author: str) -> bool:
        """Forward all messages but those of the victim."""
        return author != peer_of(self.kit.victim)


class Freeloader(Sybils):
    """Peers sit in every mesh, receive messages and forward almost none.

    They keep every other rule.
    """

    id = "freeloader"

    def __init__(self, kit: GossipKit, *, forwards: float = 0.0) -> None:
        """`forwards` is the share of messages that they forward."""
        super().__init__(kit)
        self._forwards = forwards

    def passes_on(self, author: str) -> bool:
        """A share of the messages, at random."""
        del author
        return self.kit.rng.random() < self._forwards
