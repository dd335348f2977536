"""The page: every request gets at most one answer, and on loopback only a request that names loopback is answered."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import trio
import trio.testing
from harness import MANIFEST, Source

from sapo_node.app.state import SCHEMA
from sapo_node.http.server import _converse
from sapo_node.observability.dashboard import Dashboard
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.storage.database import Database

END = re.compile(rb"\n\r?\n")
"""The end of the headers: a line may end without CR, too (RFC 9112, section 2.2)."""
HOST = re.compile(rb"^host:[ \t]*(.*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
LOOPBACK = re.compile(rb"(localhost|127(\.\d{1,3}){3}|\[[0:]*:0*1\]|\[[0:]*:ffff:[\w.:]+\])(:\d{1,5})?", re.IGNORECASE)
NAMES = (b"127.0.0.1", b"localhost", b"[::1]", b"evil.example", b"a{b.evil", b"127.1", b"[::1%lo]", b"", b"localhost.")
HEADERS = (b"Host", b"host", b"Host ", b"X-Forwarded-Host", b"Content-Length", b"Transfer-Encoding")
PATHS = (b"/", b"/page.js", b"/api/state", b"/api/groups?fate=own", b"/api/peers/a", b"/metrics", b"http://a/", b"*")


@functools.cache
def page() -> Dashboard:
    """A page on loopback; its own socket stays unused."""
    database = Database(None, SCHEMA)
    return Dashboard(Facts(database, []), database, ("127.0.0.1", 0), MANIFEST, Path("token of no file"))


def fuzz(data: bytes) -> None:
    request = raw(Source(data))
    answer = trio.run(exchange, request, clock=trio.testing.MockClock(autojump_threshold=0))
    if not answer:
        return
    head, _, _ = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert head.startswith(b"HTTP/1.1 ")
    assert status in {200, 400, 404, 405, 413, 414, 421, 431, 501}, status
    assert b"Connection: close" in head or b"connection: close" in head
    if status == 200:
        named = HOST.findall(END.split(request, 1)[0])
        assert len(named) == 1
        assert LOOPBACK.fullmatch(named[0]), named


async def exchange(request: bytes) -> bytes:
    """What comes back for bytes, after which the client sends nothing more."""
    client, server = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_serve, server)
        await client.send_all(request)
        await client.send_eof()
        answer = b""
        with trio.fail_after(1):
            while more := await client.receive_some():
                answer += more
    return answer


async def _serve(stream: trio.StapledStream) -> None:
    async with stream:
        await _converse(stream, page()._answer, lambda: None)


def raw(source: Source) -> bytes:
    """A request of bytes as they are, or one that is put together."""
    if source.number() & 1:
        return source.rest()
    method = (b"GET", b"HEAD", b"POST", source.string())[source.below(4)]
    path = [*PATHS, source.string()][source.below(len(PATHS) + 1)]
    lines = [b"%b %b HTTP/1.%d" % (method, path, source.below(3))]
    for _ in range(source.below(4)):
        name = HEADERS[source.below(len(HEADERS))]
        value = [*NAMES, source.string()][source.below(len(NAMES) + 1)]
        port = (b"", b":80", b":0", b":", b":99999", source.string())[source.below(6)]
        lines.append(name + b": " + value + port)
    return (b"\r\n", b"\n")[source.below(2)].join([*lines, b"", b""]) + source.rest()


def seeds() -> Iterator[bytes]:
    for host in NAMES:
        yield b"\1GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    for path in PATHS:
        yield b"\1GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    yield b"\1GET / HTTP/1.0\r\n\r\n"
    yield b"\1GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    for choice in range(6):
        yield bytes([0, choice % 4, choice, 1, 1, 0, choice, choice])
