"""An HTTP/1.1 server on h11, with one request per connection.

- At most MAX_CONNECTIONS connections are open. If all are taken, the server closes the oldest for a new one. It never
  closes a connection whose client has shown a token.
- A connection ends after SECONDS, or after the seconds that the caller of `serve` gives. The server keeps none alive,
  because it shares the node's file descriptors with the peers.
- The server answers a request to change the protocol (HTTP/2, WebSocket) in HTTP/1.1.

h11 parses the request. This module also checks the target and the Host header against this grammar, because the page
trusts the host name:

    target = "/" ...                         no absolute form, no "*"
    Host   = ( name / "[" IPv6 "]" ) [ ":" port ]
    name   = labels of letters, digits and inner hyphens

A name that ends in a number is an IPv4 address, because browsers read it as one.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import parse_qsl, unquote

import h11
import trio

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
MAX_HEAD_BYTES = 16_384
SECONDS = 10.0
"""From accepting a connection to its end."""
_READ_BYTES = 4_096

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>{_LABEL}(?:\.{_LABEL})*))(?::(?P<port>[0-9]{{1,5}}))?")
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)")

Host = IPv4Address | IPv6Address | str


class RefusedRequest(Exception):
    """The server answers the request with this status and sentence."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


async def _no_body(_: int) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that fits the grammar."""

    method: str
    host: Host
    """From the Host header, without the port; a name is in lower case."""
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By name in lower case."""
    read: Callable[[int], Awaitable[bytes]] = field(default=_no_body, compare=False)
    """Reads a body of at most the given bytes. Raises RefusedRequest."""
    admit: Callable[[], None] = field(default=lambda: None, compare=False)
    """The service calls it if the client has shown the token. The server then keeps this connection."""

    @property
    def bearer(self) -> str:
        """The token of `Authorization: Bearer`; empty without one. A scheme has no case (RFC 9110 section 11.1)."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a service."""

    content: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a sentence about the error in the request."""
    return Answer(text.encode(), status=status, headers=headers or {})


Answering = Callable[[Request], Awaitable[Answer]]


def is_loopback(host: Host) -> bool:
    """Return whether a Host header names this machine. No name but `localhost` counts: DNS may lead others here."""
    return host == "localhost" if isinstance(host, str) else host.is_loopback


async def serve(listener: trio.SocketListener, answer: Answering, *, seconds: float = SECONDS) -> None:
    """Answer requests until cancelled. A connection ends after `seconds`."""
    connections: dict[trio.CancelScope, bool] = {}
    """The open connections, oldest first. True: the client has shown the token."""

    async def handle(stream: trio.SocketStream) -> None:
        if len(connections) == MAX_CONNECTIONS:
            oldest = next((scope for scope, is_known in connections.items() if not is_known), None)
            if oldest is None:
                return
            del connections[oldest]
            oldest.cancel()
        with trio.move_on_after(seconds) as scope:
            connections[scope] = False
            try:
                await _converse(stream, answer, partial(connections.__setitem__, scope, True))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client is gone
            finally:
                connections.pop(scope, None)

    await trio.serve_listeners(handle, [listener])


async def _converse(stream: trio.SocketStream, answer: Answering, admit: Callable[[], None]) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    without_content = False
    try:
        event = await _next_event(connection, stream)
    except h11.RemoteProtocolError as error:
        answered = refusal(error.error_status_hint, f"this is no request of HTTP/1.1: {error}")
    else:
        if not isinstance(event, h11.Request):
            return  # the client closed without a request
        request = _parse(event)
        if isinstance(request, Request):
            request = replace(request, read=partial(_read_body, connection, stream), admit=admit)
        answered = request if isinstance(request, Answer) else await _answered(request, answer)
        without_content = event.method == b"HEAD"
    headers = [
        ("Content-Type", answered.kind),
        ("Content-Length", str(len(answered.content))),
        ("Connection", "close"),
        *answered.headers.items(),
    ]
    head = connection.send(h11.Response(status_code=answered.status, headers=headers))
    await stream.send_all((head or b"") + (b"" if without_content else answered.content))
    # The client closes first. If the server closed with unread bytes, the client could lose the answer.
    await stream.send_eof()
    while await stream.receive_some(_READ_BYTES):
        pass


async def _next_event(connection: h11.Connection, stream: trio.SocketStream) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        if connection.they_are_waiting_for_100_continue:
            await stream.send_all(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        connection.receive_data(await stream.receive_some(_READ_BYTES))
    return event


async def _read_body(connection: h11.Connection, stream: trio.SocketStream, limit: int) -> bytes:
    body = bytearray()
    try:
        while isinstance(event := await _next_event(connection, stream), h11.Data):
            body += event.data
            if len(body) > limit:
                raise RefusedRequest(413, f"the body has more than {limit:,} bytes")
    except h11.RemoteProtocolError as error:
        raise RefusedRequest(400, f"the body is not as the head announced it: {error}") from error
    return bytes(body)


async def _answered(request: Request, answer: Answering) -> Answer:
    try:
        return await answer(request)
    except RefusedRequest as refused:
        return refusal(refused.status, str(refused), refused.headers)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise  # the client is gone
    except Exception:
        # A bug in a service must not stop the node.
        logger.exception("the service cannot answer %s", request.path)
        return refusal(500, "the service failed on this; the node goes on, and its log says why")


def _parse(event: h11.Request) -> Request | Answer:
    target = event.target.decode("ascii")
    if not target.startswith("/"):
        return refusal(400, "ask for a path, as in GET / HTTP/1.1")
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
    host = parse_host(headers.get("host", ""))
    if host is None:
        return refusal(400, "the Host header names no host in the form of NAME:PORT")
    path, _, query = target.partition("?")
    values = dict(parse_qsl(query, keep_blank_values=True))
    return Request(event.method.decode("ascii"), host, unquote(path), values, headers)


def parse_host(text: str) -> Host | None:
    """The host that a Host header names; None if the header does not fit the grammar."""
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    try:
        if found["ipv6"]:
            return IPv6Address(found["ipv6"])
        if _ENDS_IN_NUMBER.fullmatch(found["name"]):
            return IPv4Address(found["name"])
    except AddressValueError:
        return None
    return found["name"].lower()
