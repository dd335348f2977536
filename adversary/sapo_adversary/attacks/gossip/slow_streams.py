from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from sapo_adversary.attacks.gossip.kit import GossipAttack, GossipKit

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link, Peer

_BEGINNING = b"\x80\x80\x20"
"""The length of an RPC of half a megabyte, of which next to nothing follows."""

_BYTE_SECONDS = 4.0
"""Seconds between two bytes: the stream looks alive."""
_PAUSE_SECONDS = 0.3
"""Seconds between two new streams on a connection: more at a time fail to open."""


class SlowStreams(GossipAttack):
    """Many streams are opened, and on each a message arrives byte by byte and never ends."""

    id = "slow-streams"
    layer = "wire"

    def __init__(self, kit: GossipKit, *, streams: int = 20, judged_after: float = 28.0) -> None:
        """So many streams of each host at each honest node. Those that could be open for `judged_after` seconds are
        judged: the honest node should have closed them by then.
        """
        super().__init__(kit)
        self._streams = streams
        self._judged_after = judged_after
        self._held: list[tuple[float, float]] = []
        """When each stream was opened, and for how many seconds it was open."""
        self._end = 0.0

    async def play(self) -> None:
        """All hosts at all honest nodes."""
        try:
            async with trio.open_nursery() as nursery:
                for number in range(self.kit.count):
                    nursery.start_soon(self._live, number)
        finally:
            self._end = trio.current_time()

    async def _live(self, number: int) -> None:
        async def ignore(_sender: str, _rpc: Any) -> None: ...

        async with self.kit.peer(number, ignore) as peer, trio.open_nursery() as nursery:
            for address in self.kit.honest:
                nursery.start_soon(self._hold, peer, address)
                await trio.sleep(_PAUSE_SECONDS)

    async def _hold(self, peer: "Peer", address: str) -> None:
        """Dial, again when it was thrown out, and hold as many streams as are given."""
        while True:
            with suppress(Exception):
                async with trio.open_nursery() as nursery:
                    link = await peer.dial(address)
                    for _ in range(self._streams):
                        nursery.start_soon(self._drip, link)
                        await trio.sleep(_PAUSE_SECONDS)
            await trio.sleep(2)

    async def _drip(self, link: "Link") -> None:
        """On one more stream byte after byte, as long as they are taken."""
        with suppress(Exception):
            await self._keep_waiting(await link.another())

    async def _keep_waiting(self, link: "Link") -> None:
        began, place = trio.current_time(), len(self._held)
        self._held.append((began, inf))
        with suppress(Exception):
            await link.write(_BEGINNING)
            while True:
                await trio.sleep(_BYTE_SECONDS)
                await link.write(b"\0")
        self._held[place] = (began, trio.current_time() - began)

    def report(self) -> Mapping[str, Any]:
        """How many streams were opened, and what became of them."""
        verified_or_unusable = [lasted for began, lasted in self._held if began < self._end - self._judged_after]
        return {
            "opened": len(self._held),
            "judged": len(verified_or_unusable),
            "closed": sum(lasted <= self._judged_after for lasted in verified_or_unusable),
        }
