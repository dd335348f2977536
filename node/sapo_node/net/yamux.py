"""Yamux, with a bound on what one connection costs and an end for a connection that is dead.

The library reads from a connection as fast as bytes come. It keeps what no stream has taken, also beyond the window
that it granted, and the streams that its peer never closes. Here the node reads from a connection only while

- its peer is within its rate of reads: the peer chooses how many frames and how many Noise messages it cuts its bytes
  into, and each costs CPU,
- fewer than UNREAD_BYTES wait to be taken by streams,
- at most STREAMS streams are open.

Otherwise TCP makes the peer wait. No peer is charged for that, because a fast honest peer waits as well.

Each side sends a yamux ping every PING_SECONDS. If the node reads nothing in SILENT_TICKS ticks in a row, the
connection is closed. That happens if the machine of the peer sleeps, if its process is stopped, if a cable is pulled,
or if streams never take what waits. A stall of this node is one tick, however long it lasts.
"""

from typing import Any

import trio
from libp2p.stream_muxer.muxer_multistream import MuxerMultistream
from libp2p.stream_muxer.yamux import yamux

from sapo_node.net.link_budget import LinkBudget

READS_PER_SECOND, READS_AT_ONCE = 512.0, 2_048.0
"""The most that the node reads from one peer. A read is one frame, or a part of one. 64 KB of gossip take four."""
ASSURED_PER_SECOND, ASSURED_AT_ONCE = 32.0, 256.0
"""What the node reads from one peer however much others send."""
SHARED_PER_SECOND, SHARED_AT_ONCE = 4_096.0, 16_384.0
"""What the node reads from all peers together beyond that: as much as eight peers may send for themselves."""
WINDOW_BYTES = 1024 * 1024  # the most that one stream may be granted, and the longest frame
UNREAD_BYTES = 2 * WINDOW_BYTES  # over all streams of a connection
STREAMS = 128  # of a connection, those of either side and those that one side has closed
PAUSE_SECONDS = 0.05

PING_SECONDS = 10.0
TICK_SECONDS, SILENT_TICKS = 10.0, 5  # closed 50 to 60 s after the last read; a peer may stall for 35 s


class ReadBudget:
    """The reads of all connections of one node. A peer that connects again goes on with what it had left."""

    def __init__(self) -> None:
        self._assured = LinkBudget(rate=ASSURED_PER_SECOND, burst=ASSURED_AT_ONCE)
        self._beyond = LinkBudget(
            rate=READS_PER_SECOND - ASSURED_PER_SECOND,
            burst=READS_AT_ONCE - ASSURED_AT_ONCE,
            for_all=(SHARED_PER_SECOND, SHARED_AT_ONCE),
        )

    def take(self, peer: str, now: float) -> bool:
        """Take one read at `now` (seconds); False, and none taken, when there is none left for the peer."""
        return self._assured.take(peer, now) or self._beyond.take(peer, now)


class BoundedMuxer(MuxerMultistream):  # type: ignore[misc]
    """Opens the connections of one node."""

    def __init__(self) -> None:
        super().__init__({yamux.PROTOCOL_ID: BoundedYamux})
        self._budget = ReadBudget()

    async def new_conn(self, conn: Any, peer_id: Any) -> "BoundedYamux":
        """As in the library: agree on yamux with the peer. Raises the library's MultiselectError if that fails."""
        await self.select_transport(conn)
        muxed = BoundedYamux(conn, peer_id, self._budget, is_initiator=conn.is_initiator)
        self._annotate_connection(muxed, conn, yamux.PROTOCOL_ID)
        return muxed


class BoundedYamux(yamux.Yamux):  # type: ignore[misc]
    """The connection with one peer."""

    def __init__(self, secured_conn: Any, peer_id: Any, budget: ReadBudget, *, is_initiator: bool) -> None:
        super().__init__(secured_conn, peer_id, is_initiator=is_initiator)
        self._budget = budget
        self.why_closed = ""
        """Why this node closed the connection. Empty if it did not."""
        self._heard = False
        self._dead = False
        self._take = secured_conn.read
        secured_conn.read = self._read

    async def _read(self, count: int | None = None) -> bytes:
        """Read from the connection as soon as it is within its bounds."""
        while not (self._dead or self.event_shutting_down.is_set() or self._may_read()):  # noqa: ASYNC110 - nothing tells when it may
            await trio.sleep(PAUSE_SECONDS)
        data = bytes(await self._take(count))
        self._heard = True
        return data

    def _may_read(self) -> bool:
        return (
            len(self.streams) <= STREAMS
            and sum(map(len, self.stream_buffers.values())) < UNREAD_BYTES
            and self._budget.take(str(self.peer_id), trio.current_time())
        )

    async def _measure_rtt_loop(self) -> None:
        """Send pings, and close the connection if nothing is read. The library sends pings alone."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._measure_rtt_loop)
            silent = 0
            while silent < SILENT_TICKS:
                self._heard = False
                await trio.sleep(TICK_SECONDS)
                silent = 0 if self._heard else silent + 1
            self.why_closed = f"nothing was read from it for {SILENT_TICKS * TICK_SECONDS:g} s"
            self._dead = True
            await self.secured_conn.close()
