"""Request/response streams: one request and one answer, each with its length before it.

The node answers a request or resets its stream. It reads and answers PEER_REQUESTS requests per peer at a time, and
sends AT_ONCE answers at a time. A request takes a place only when it has been read, so peers that begin requests
keep no other out. If all places are taken, the answer that has been on its way longest ends.

A peer that does not finish its request within ASKING_SECONDS is reported as malformed. A peer whose answer ends before
it has been read gets no answers for SLOW_SECONDS. Otherwise slow peers could take each place again at once.
"""

import logging
from collections import Counter
from typing import Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import MessageTooLarge
from libp2p.peer.id import ID
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes_limited

from sapo_node.gossip.seen import RecentIds
from sapo_node.net.inbound import ProtocolBroken, quietly, shielded
from sapo_node.net.interface import AskFailed, Requests
from sapo_protocol import Layer, RemoteError
from sapo_protocol.limits import MAX_DELIVERY_BYTES, MAX_REQUEST_BYTES

log = logging.getLogger(__name__)

PEER_REQUESTS = 3  # of one peer that are served at one time: two for bodies, and one other (DUTY-7)
AT_ONCE = 8  # answers that are sent at one time
ASKING_SECONDS = 5.0  # to receive a request
ANSWER_SECONDS = 20.0  # to send an answer; 50 kB/s for the largest
SLOW_SECONDS = 60.0  # without answers, for a peer that did not read one in time
SLOW_PEERS = 1024  # that are remembered


class Asking:
    """Both ends of the request/response streams of one host."""

    def __init__(self, host: Any, requests: Requests) -> None:
        self._host = host
        self._requests = requests
        self._open: Counter[str] = Counter()
        """By peer, its requests that are being read or answered."""
        self._sending: list[trio.CancelScope] = []
        """The answers on their way, the oldest first."""
        self._slow = RecentIds(SLOW_PEERS)
        host.set_stream_handler(TProtocol(requests.protocol), self._serve)

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        """Send a request and return the peer's answer. Raises RemoteError for an answer longer than any may be
        (PULL-5), and AskFailed for any other error of the library.
        """
        stream = answer = None
        try:
            with trio.fail_after(ASKING_SECONDS + ANSWER_SECONDS):
                stream = await self._host.new_stream(ID.from_string(peer_id), [TProtocol(self._requests.protocol)])
                await stream.write(encode_varint_prefixed(request))
                answer = bytes(await read_varint_prefixed_bytes_limited(stream, MAX_DELIVERY_BYTES))
        except MessageTooLarge as error:
            raise RemoteError(Layer.PULL, f"an answer of more than {MAX_DELIVERY_BYTES} bytes") from error
        except Exception as error:
            raise AskFailed(f"{peer_id} did not answer a request: {type(error).__name__}") from error
        finally:
            if stream is not None:
                # Also if this is cancelled: the peer serves no other request of this node while the stream is open.
                await shielded(stream.reset if answer is None else stream.close)
        return answer

    async def _serve(self, stream: Any) -> None:
        """Answer one request. An error ends only this stream. Raises ProtocolBroken for a request without an end."""
        peer_id = str(stream.muxed_conn.peer_id)
        if self._open[peer_id] >= PEER_REQUESTS or self._slow.has(peer_id.encode(), trio.current_time()):
            await quietly(stream.reset)
            return
        self._open[peer_id] += 1
        try:
            answer = await self._requests.answer(peer_id, await _read(stream))
            if answer is not None and await self._send(stream, answer):
                await quietly(stream.close)
                return
            if answer is not None:
                self._slow.add(peer_id.encode(), trio.current_time(), SLOW_SECONDS)
        except ProtocolBroken:
            raise
        except Exception as error:  # noqa: BLE001 - an error must not reach the swarm's nursery
            log.debug("a request of %s ended with %r", peer_id, error)
        finally:
            self._open[peer_id] -= 1
            self._open += Counter()  # drops the peers without one
        await quietly(stream.reset)

    async def _send(self, stream: Any, answer: bytes) -> bool:
        """False if the peer read the answer too slowly, or a later answer took its place."""
        with trio.CancelScope(deadline=trio.current_time() + ANSWER_SECONDS) as place:
            if len(self._sending) >= AT_ONCE:
                self._sending.pop(0).cancel()
            self._sending.append(place)
            try:
                await stream.write(encode_varint_prefixed(answer))
            except Exception as error:  # noqa: BLE001 - among others, the library waits 5 s for a reader
                log.debug("an answer did not arrive: %r", error)
            else:
                return True
            finally:
                if place in self._sending:
                    self._sending.remove(place)
        return False


async def _read(stream: Any) -> bytes:
    """The request. Raises ProtocolBroken if it takes longer than ASKING_SECONDS."""
    try:
        with trio.fail_after(ASKING_SECONDS):
            return bytes(await read_varint_prefixed_bytes_limited(stream, MAX_REQUEST_BYTES))
    except trio.TooSlowError as error:
        raise ProtocolBroken("request never finished") from error
