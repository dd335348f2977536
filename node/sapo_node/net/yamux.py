"""Yamux, with a bound on what one connection costs and an end for a connection that is dead.

The library reads from a connection as fast as bytes come. It keeps what no stream has taken, also beyond the window
that it granted, and the streams that its peer never closes. Here the node reads from a connection only while

- its peer is within its rate of reads: the peer chooses how many frames and how many Noise messages it cuts its bytes
  into, and each costs CPU,
- fewer than UNREAD_BYTES wait to be taken by streams,
- at most STREAMS streams are open.

Otherwise TCP makes the peer wait. No peer is charged for that, because a fast honest peer waits as well.

The peer may have WINDOW_BYTES on their way to one stream. A stream tells it of bytes that were read once they are half
of that, as the yamux specification advises. The library tells it at every read: one frame more for each message.

A peer also has a rate of streams that it opens, because a stream costs CPU whatever it brings: the peer and the node
agree on its protocol. The node takes a stream when the peer is within that rate. Ten streams may wait; then the node
reads nothing more from the connection.

Each side sends a yamux ping every PING_SECONDS. If the node reads nothing in SILENT_TICKS ticks in a row, the
connection is closed. That happens if the machine of the peer sleeps, if its process is stopped, if a cable is pulled,
or if streams never take what waits. A stall of this node is one tick, however long it lasts.
"""

from typing import Any

import trio
from libp2p.stream_muxer.muxer_multistream import MuxerMultistream
from libp2p.stream_muxer.yamux import yamux

from sapo_node.processes.link_budget import LinkBudget, Rate

READS, ASSURED_READS, SHARED_READS = (512.0, 2_048.0), (32.0, 256.0), (4_096.0, 16_384.0)
"""The most that the node reads from one peer, what each peer has however much others send, and what all peers share
beyond that: eight at their most. A read is one frame, or a part of one. 64 KB of gossip take four."""
STREAMS_OPENED, ASSURED_STREAMS, SHARED_STREAMS = (4.0, 64.0), (0.5, 32.0), (16.0, 256.0)
"""The same of streams that peers open. An honest peer opens one for each request, and one for its gossip."""
WINDOW_BYTES = yamux.DEFAULT_WINDOW_SIZE  # that a peer may send to a stream ahead of its reader; the longest frame
UNREAD_BYTES = 2 * 1024 * 1024  # over all streams of a connection
STREAMS = 128  # of a connection, those of either side and those that one side has closed
PAUSE_SECONDS = 0.05

PING_SECONDS = 10.0
TICK_SECONDS, SILENT_TICKS = 10.0, 5  # closed 50 to 60 s after the last read; a peer may stall for 35 s


def budget_of(most: Rate, assured: Rate, shared: Rate) -> LinkBudget:
    """The budget of all connections of one node. A peer that reconnects goes on with the rest of its budget.

    One peer has `most`. Of that, `assured` is its own, and the rest is a part of what is `shared` by all.
    """
    rate, burst = most
    return LinkBudget(rate=rate, burst=burst, for_all=shared, assured=assured)


class BoundedMuxer(MuxerMultistream):  # type: ignore[misc]
    """Opens the connections of one node."""

    def __init__(self) -> None:
        super().__init__({yamux.PROTOCOL_ID: BoundedYamux})
        self._budgets = (
            budget_of(READS, ASSURED_READS, SHARED_READS),
            budget_of(STREAMS_OPENED, ASSURED_STREAMS, SHARED_STREAMS),
        )

    async def new_conn(self, conn: Any, peer_id: Any) -> "BoundedYamux":
        """As in the library: agree on yamux with the peer. Raises the library's MultiselectError if that fails."""
        await self.select_transport(conn)
        return BoundedYamux(conn, peer_id, *self._budgets, is_initiator=conn.is_initiator)


def grant_by_halves(stream: Any) -> Any:
    """Have a stream grant its peer WINDOW_BYTES, by half of them at a time. Returns the stream."""
    untold = 0  # bytes that were read and that the peer was not told of

    async def read(n: int | None = -1) -> bytes:
        nonlocal untold
        data = bytes(await stream.conn.read_stream(stream.stream_id, n))
        untold += len(data)
        if untold >= WINDOW_BYTES // 2:
            told, untold = untold, 0
            stream.recv_window += told
            await stream.send_window_update(told)
        return data

    stream.read = read
    return stream


class BoundedYamux(yamux.Yamux):  # type: ignore[misc]
    """The connection with one peer."""

    def __init__(
        self, secured_conn: Any, peer_id: Any, reads: LinkBudget, opened: LinkBudget, *, is_initiator: bool
    ) -> None:
        super().__init__(secured_conn, peer_id, is_initiator=is_initiator)
        self._reads = reads
        self._opened = opened
        self.why_closed = ""
        """The reason for which this node closed the connection. Empty if it did not."""
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
            and self._reads.take(str(self.peer_id), trio.current_time())
        )

    async def open_stream(self) -> Any:
        """A stream that this node opens."""
        return grant_by_halves(await super().open_stream())

    async def accept_stream(self) -> Any:
        """The next stream that the peer opened, as soon as the peer is within its rate."""
        stream = await super().accept_stream()
        peer = str(self.peer_id)
        while not (self.event_shutting_down.is_set() or self._opened.take(peer, trio.current_time())):  # noqa: ASYNC110 - nothing tells when
            await trio.sleep(PAUSE_SECONDS)
        return grant_by_halves(stream)

    async def start(self) -> None:
        """Run the connection until it ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_if_silent)
            await super().start()
            nursery.cancel_scope.cancel()

    async def _close_if_silent(self) -> None:
        silent = 0
        while silent < SILENT_TICKS:
            self._heard = False
            await trio.sleep(TICK_SECONDS)
            silent = 0 if self._heard else silent + 1
        self.why_closed = f"nothing was read from it for {SILENT_TICKS * TICK_SECONDS:g} s"
        self._dead = True
        await self.secured_conn.close()
