"""HTTP/1.1 for the page: one request per connection, at most MAX_CONNECTIONS connections, each for at most SECONDS.

The page shares the node's file descriptors with its peers, so the server keeps no connection alive. A request to change
the protocol (HTTP/2, WebSocket) is answered in HTTP/1.1. h11 parses the request. This module then holds the target and
the Host header to a grammar of its own, because the page trusts the host name (see `server.py`):

    target = "/" ...                         no absolute form, no "*"
    Host   = ( name / "[" IPv6 "]" ) [ ":" port ]
    name   = labels of letters, digits and inner hyphens

A name that ends in a number is an IPv4 address, because browsers read it as one.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Request:
    """One request that keeps to the grammar."""

    method: str
    host: Host
    """From the Host header, without the port; a name is in lower case."""
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By name in lower case."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back."""

    content: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(status: int, text: str) -> Answer:
    """An answer that says what is wrong with the request."""
    return Answer(text.encode(), status=status)


async def serve(listener: trio.SocketListener, answer: Callable[[Request], Answer]) -> None:
    """Answer requests until cancelled. At MAX_CONNECTIONS the server drops the oldest connection for a new one."""
    open_connections: list[trio.CancelScope] = []

    async def handle(stream: trio.SocketStream) -> None:
        if len(open_connections) == MAX_CONNECTIONS:
            open_connections.pop(0).cancel()
        with trio.move_on_after(SECONDS) as scope:
            open_connections.append(scope)
            try:
                await _converse(stream, answer)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client is gone
            finally:
                if scope in open_connections:
                    open_connections.remove(scope)

    await trio.serve_listeners(handle, [listener])


async def _converse(stream: trio.SocketStream, answer: Callable[[Request], Answer]) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    without_content = False
    try:
        event = connection.next_event()
        while event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_READ_BYTES))
            event = connection.next_event()
    except h11.RemoteProtocolError as error:
        answered = refusal(error.error_status_hint, f"this is no request of HTTP/1.1: {error}")
    else:
        if not isinstance(event, h11.Request):
            return  # the client closed without a request
        request = _parse(event)
        answered = request if isinstance(request, Answer) else _answered(request, answer)
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


def _answered(request: Request, answer: Callable[[Request], Answer]) -> Answer:
    try:
        return answer(request)
    except Exception:
        # The page only shows what the node does. A fault of the page goes to the log, and must not stop the node.
        logger.exception("the page cannot answer %s", request.path)
        return refusal(500, "the page failed on this; the node goes on, and its log says why")


def _parse(event: h11.Request) -> Request | Answer:
    target = event.target.decode("ascii")
    if not target.startswith("/"):
        return refusal(400, "ask for a path, as in GET / HTTP/1.1")
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
    host = parse_host(headers.get("host", ""))
    if host is None:
        return refusal(400, "the Host header names no host in the form of NAME:PORT")
    path, _, query = target.partition("?")
    return Request(event.method.decode("ascii"), host, unquote(path), dict(parse_qsl(query)), headers)


def parse_host(text: str) -> Host | None:
    """The host that a Host header names, or None where the header breaks the grammar."""
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
