"""The queues of gossip that waits to be sent: one for each peer, and one budget of bytes for all of them.

Each queue holds a copy of what it sends, so many peers that do not read would otherwise fill the memory. If all queues
together exceed ALL_QUEUED_BYTES, the peer whose queue holds most bytes loses its queue and its connection. That peer
reads more slowly than it is sent to; if it is honest, it connects again and requests what it missed.
"""

from collections.abc import Callable
from typing import Any

from libp2p.pubsub import rpc_queue

QUEUED_RPCS = 4096  # the library's 32 loses most of a burst without an error
QUEUED_BYTES = 16 * 1024 * 1024  # for one peer; the library limits only the number of RPCs
ALL_QUEUED_BYTES = 64 * 1024 * 1024  # for all peers


class BoundedRpcQueue(rpc_queue.RpcQueue):  # type: ignore[misc]
    """The outbound queue of one peer, bounded in bytes as well as in RPCs."""

    def __init__(self) -> None:
        super().__init__(max_size=QUEUED_RPCS)
        self.bytes = 0
        self.changed: Callable[[int], None] = lambda _: None
        """Called with the number of bytes that came, or that went if it is negative."""

    def push(self, rpc: Any, priority: bool = False) -> bool:  # noqa: FBT001, FBT002 - the library's signature
        size = rpc.ByteSize()
        if self.bytes + size > QUEUED_BYTES or not super().push(rpc, priority):
            return False
        self._change(size)
        return not self.closed  # it may have been the one to lose its queue

    async def pop(self) -> Any:
        rpc = await super().pop()
        if rpc is not None:
            self._change(-rpc.ByteSize())
        return rpc

    def close(self) -> None:
        """Drop what waits."""
        while self._queue.pop() is not None:
            pass
        self._change(-self.bytes)
        super().close()

    def _change(self, by: int) -> None:
        self.bytes += by
        self.changed(by)


class OutboundQueues(dict[Any, BoundedRpcQueue]):
    """The queues of all peers of one host, by peer, with their common budget."""

    def __init__(self, disconnect: Callable[[Any], None]) -> None:
        """`disconnect(peer)` is called for a peer that lost its queue. It must not wait."""
        super().__init__()
        self.bytes = 0
        self._disconnect = disconnect

    def __setitem__(self, peer: Any, queue: BoundedRpcQueue) -> None:
        super().__setitem__(peer, queue)
        queue.changed = self._changed

    def _changed(self, by: int) -> None:
        self.bytes += by
        if by > 0 and self.bytes > ALL_QUEUED_BYTES:
            slowest = max(self, key=lambda peer: self[peer].bytes)
            self[slowest].close()
            self._disconnect(slowest)
