"""Limits the connections and streams that peers open: how many, how fast, and from which addresses.

Every inbound connection and stream starts here. This module handles all their errors: an error that reached the
library's nurseries would end the host.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio
from libp2p.host.exceptions import StreamFailure
from libp2p.io.exceptions import IOException
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.protocol_muxer.exceptions import MultiselectError

from sapo_node.net.defences import STREAMS

log = logging.getLogger(__name__)

HANDSHAKES = 16  # unfinished, from one IP address
HANDSHAKE_SECONDS = 5.0
SHUN_SECONDS = 60.0  # honest peers may share the address; the node can still dial them


class Inbound:
    """Handles the inbound connections and streams of one host."""

    def __init__(
        self,
        swarm: Any,
        *,
        note: Callable[[Any], None],
        refuses: Callable[[str], bool],
        offended: Callable[[str, str], None],
        most: int = STREAMS,
    ) -> None:
        """Replaces the swarm's own handlers.

        `note(socket)` is called for each accepted socket. `refuses(peer id)` says whether to shun the address of a
        peer. `offended(peer id, cause)` is called if a peer breaks a protocol. A peer may hold `most` streams open.
        """
        self.streams: Counter[str] = Counter()
        """Open streams by peer id."""
        self._swarm = swarm
        self._note = note
        self._refuses = refuses
        self._offended = offended
        self._most = most
        self._handshakes: Counter[str] = Counter()
        self._shunned: dict[str, float] = {}
        """By IP address: until when its connections are refused."""
        self._negotiate = swarm.common_stream_handler
        swarm.set_stream_handler(self._take_stream)
        swarm._do_handle_inbound_connection = self._take_connection  # noqa: SLF001 - the library's handler never frees its slot

    async def _take_stream(self, stream: Any) -> None:
        """Handle one inbound stream of any protocol. Raises nothing, which would end the connection."""
        peer_id = str(stream.muxed_conn.peer_id)
        if self.streams[peer_id] >= self._most:
            await quietly(stream.reset)
            return
        self.streams[peer_id] += 1
        try:
            await self._negotiate(stream)
        except (IOException, StreamFailure, MultiselectError):
            await quietly(stream.reset)
        except Exception as error:  # noqa: BLE001 - it would tear down the swarm
            self._offended(peer_id, f"broke a protocol handler: {type(error).__name__}")
            await quietly(stream.reset)
        finally:
            self.streams[peer_id] -= 1
            if not self.streams[peer_id]:
                del self.streams[peer_id]

    async def _take_connection(self, socket: Any, listener: Any, _event: Any) -> None:
        """Upgrade an inbound connection, and hold its slot until it closes.

        The library's handler waits for the end of the swarm instead. Every connection would keep its slot for ever, and
        after a day the node would accept no connection.
        """
        remote = socket.get_remote_address()
        source = remote[0] if remote else ""
        if self._handshakes[source] >= HANDSHAKES:
            await quietly(socket.close)
            return
        self._handshakes[source] += 1
        self._note(socket)
        try:
            await self._let_in(source)
            muxed = await self._swarm.upgrade_inbound_raw_conn(RawConnection(socket, False), listener)
        except Exception as error:  # noqa: BLE001 - a failed handshake ends only its connection
            log.debug("handshake from %s failed: %r", source, error)
            await quietly(socket.close)
            return
        finally:
            self._handshakes[source] -= 1
            if not self._handshakes[source]:
                del self._handshakes[source]
        if self._refuses(str(muxed.peer_id)):
            self._shun(source)
        for link in self._swarm.get_connections(muxed.peer_id):
            if link.muxed_conn is muxed:
                await link.event_closed.wait()

    async def _let_in(self, source: str) -> None:
        """Raise ConnectionRefusedError for a shunned address, but late: a peer refused at once returns at once."""
        if trio.current_time() < self._shunned.get(source, 0.0):
            await trio.sleep(HANDSHAKE_SECONDS)
            raise ConnectionRefusedError(source)

    def _shun(self, source: str) -> None:
        """Refuse connections from the address of a peer that floods. Without this, each one costs us a handshake."""
        now = trio.current_time()
        self._shunned = {each: until for each, until in self._shunned.items() if until > now}
        self._shunned[source] = now + SHUN_SECONDS


async def quietly(close: Callable[[], Any]) -> None:
    """Close something that is no longer needed. Errors are only logged."""
    try:
        await close()
    except Exception as error:  # noqa: BLE001 - see above
        log.debug("closing failed: %r", error)
