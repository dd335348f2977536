"""What must be changed inside py-libp2p 0.8.1 before a host is built; each item says what it was and why.

Applied once per process, on import of `sapo_node.net.host`. Nothing here changes what goes over the wire.
"""

import logging
import os
import socket
import weakref
from collections import OrderedDict
from typing import Any

import trio
from libp2p.io.trio import TrioTCPStream
from libp2p.pubsub import gossipsub, pubsub, rpc_queue, utils

QUEUED_RPCS = 4096  # the library's 32 loses most of a burst without an error
QUEUED_BYTES = 16 * 1024 * 1024  # per peer that reads slowly; the library bounds the count only
RECORDS = 1024  # signed peer records remembered per host
OWN_RECORD_SECONDS = 5.0  # for so long our own addresses are taken as unchanged
RECORD_RENEWAL_SECONDS = 600.0  # the original also renews the peer's addresses, so let it through at times

_seen_records: "weakref.WeakKeyDictionary[Any, OrderedDict[Any, tuple[bytes, float]]]" = weakref.WeakKeyDictionary()
_own_records: "weakref.WeakKeyDictionary[Any, tuple[float, tuple[bytes, bool]]]" = weakref.WeakKeyDictionary()
_consume_record = utils.maybe_consume_signed_record
_make_record = pubsub.env_to_send_in_RPC
_connect_stream = TrioTCPStream.__init__


class BoundedRpcQueue(rpc_queue.RpcQueue):  # type: ignore[misc]
    """The outbound queue of one peer, bounded in bytes as well as in RPCs."""

    def __init__(self) -> None:
        super().__init__(max_size=QUEUED_RPCS)
        self._bytes = 0

    def push(self, rpc: Any, priority: bool = False) -> bool:  # noqa: FBT001, FBT002 - the library's signature
        size = rpc.ByteSize()
        if self._bytes + size > QUEUED_BYTES or not super().push(rpc, priority):
            return False
        self._bytes += size
        return True

    async def pop(self) -> Any:
        rpc = await super().pop()
        if rpc is not None:
            self._bytes -= rpc.ByteSize()
        return rpc


def consume_record_once(rpc: Any, host: Any, peer_id: Any) -> bool:
    """Verify a signed peer record only when it is new; the library verifies it again with every RPC."""
    if not rpc.HasField("senderRecord"):
        return True
    records = _seen_records.setdefault(host, OrderedDict())
    known, renewed = records.get(peer_id, (b"", 0.0))
    now = trio.current_time()
    if known == rpc.senderRecord and now - renewed < RECORD_RENEWAL_SECONDS:
        return True
    if not _consume_record(rpc, host, peer_id):
        return False
    records[peer_id] = (rpc.senderRecord, now)
    records.move_to_end(peer_id)
    if len(records) > RECORDS:
        records.popitem(last=False)
    return True


def own_record(host: Any) -> tuple[bytes, bool]:
    """Look seldom whether our own addresses have changed; the library does with every RPC that it sends."""
    until, record = _own_records.get(host, (0.0, (b"", False)))
    if trio.current_time() >= until:
        record = _make_record(host)
        _own_records[host] = (trio.current_time() + OWN_RECORD_SECONDS, record)
    return record


def forget_record(host: Any, peer_id: Any) -> None:
    """Drop what is remembered of a peer that left."""
    _seen_records.get(host, OrderedDict()).pop(peer_id, None)


def _stream_with_keepalive(self: Any, stream: trio.SocketStream) -> None:
    """Notice a peer that vanished without a word: the library has no keep-alive of its own."""
    _connect_stream(self, stream)
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
    ):
        if hasattr(socket, name):  # not every platform has all of them
            stream.setsockopt(level, getattr(socket, name), value)


def apply() -> None:
    """Idempotent. Must run before the first host is built."""
    os.environ.setdefault("PY_YAMUX_RELEASE_ON_READ", "0")  # far fewer window updates
    pubsub.RpcQueue = BoundedRpcQueue
    pubsub.maybe_consume_signed_record = consume_record_once
    gossipsub.maybe_consume_signed_record = consume_record_once
    pubsub.env_to_send_in_RPC = own_record
    gossipsub.env_to_send_in_RPC = own_record
    TrioTCPStream.__init__ = _stream_with_keepalive
    library = logging.getLogger("libp2p")
    if not library.handlers:
        # It reports each failed dial as an error; set LIBP2P_DEBUG to see what it says.
        library.addHandler(logging.NullHandler())
