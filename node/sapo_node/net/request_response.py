"""Request/response streams: one request and one answer, each with its length before it.

The node answers a request at once or resets its stream. It answers one request per peer and AT_ONCE peers at a time. It
resets the stream of a peer that sends its request or reads the answer too slowly.
"""

import logging
from typing import Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes_limited

from sapo_node.net.inbound import quietly
from sapo_node.net.interface import AskFailed, Requests
from sapo_protocol.limits import MAX_DELIVERY_BYTES, MAX_REQUEST_BYTES

log = logging.getLogger(__name__)

AT_ONCE = 8  # peers that are answered at one time
ASKING_SECONDS = 5.0  # to receive a request
ANSWER_SECONDS = 20.0  # to send an answer; 50 kB/s for the largest


class Asking:
    """Both ends of the request/response streams of one host."""

    def __init__(self, host: Any, requests: Requests) -> None:
        self._host = host
        self._requests = requests
        self._answering: set[str] = set()
        host.set_stream_handler(TProtocol(requests.protocol), self._serve)

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        """Send a request and return the peer's answer. Raises AskFailed for any error of the library."""
        stream = None
        try:
            with trio.fail_after(ASKING_SECONDS + ANSWER_SECONDS):
                stream = await self._host.new_stream(ID.from_string(peer_id), [TProtocol(self._requests.protocol)])
                await stream.write(encode_varint_prefixed(request))
                answer = await read_varint_prefixed_bytes_limited(stream, MAX_DELIVERY_BYTES)
        except Exception as error:
            if stream is not None:
                await quietly(stream.reset)
            raise AskFailed(f"{peer_id} did not answer a request: {type(error).__name__}") from error
        await quietly(stream.close)
        return bytes(answer)

    async def _serve(self, stream: Any) -> None:
        """Answer one request. An error ends only this stream."""
        peer_id = str(stream.muxed_conn.peer_id)
        if peer_id in self._answering or len(self._answering) >= AT_ONCE:
            await quietly(stream.reset)
            return
        self._answering.add(peer_id)
        try:
            with trio.fail_after(ASKING_SECONDS):
                request = await read_varint_prefixed_bytes_limited(stream, MAX_REQUEST_BYTES)
            answer = self._requests.answer(peer_id, bytes(request))
            if answer is None:
                await quietly(stream.reset)
                return
            with trio.fail_after(ANSWER_SECONDS):
                await stream.write(encode_varint_prefixed(answer))
            await quietly(stream.close)
        except Exception as error:  # noqa: BLE001 - an error must not reach the swarm's nursery
            log.debug("a request of %s ended with %r", peer_id, error)
            await quietly(stream.reset)
        finally:
            self._answering.discard(peer_id)
