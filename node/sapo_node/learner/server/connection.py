"""Speaks HTTP with an inference server, within limits.

All requests of a round share one deadline. Each reply is plain JSON of a limited number of bytes.

While a request waits, the connection asks for the health of the server. If the server is dead, the request fails at
once, long before the deadline.

The connection follows no redirect, and sends nothing unencrypted to another machine.
"""

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import trio

from sapo_node.contributors.exchange import (
    ReplyTooLong,
    address_of,
    client_of,
    exchange,
    is_private,
    place_of,
    require_safe,
    sentence_of,
)
from sapo_protocol import LocalError
from sapo_protocol.files import refuse_constant
from sapo_protocol.printable import excerpt, line_of

OPTION = "--generate"
REQUEST_SECONDS = 600.0
"""Seconds for all requests of a round together, at most."""
SHORT_REPLY = 2**20
"""Bytes of a reply that holds no completions, at most."""
HEALTH_EVERY, HEALTH_SECONDS = 2.0, 8.0
"""Seconds between two requests for the health of the server, and seconds for the reply to one."""
SICK_ANSWERS = 2
"""The server counts as dead when this many requests for its health in a row have failed."""
QUICK_SECONDS = 10.0
"""Seconds for a reply that takes the server no work, at most."""
_DONE, _NOT_IMPLEMENTED = 200, 501


class ServerFailed(LocalError):
    """The server did not answer, or its answer was wrong. The message says why."""

    def __init__(self, message: str, status: int = 0) -> None:
        """`status` is the HTTP status of a reply that refuses; 0 for any other failure."""
        super().__init__(message)
        self.status = status


class ServerLate(ServerFailed):
    """The server had not answered when the deadline of the round was over."""


def base_of(url: str, key: str | None) -> httpx.URL:
    """Return the address of the server, without a `/v1` at its end. The paths of requests follow it.

    Raises LocalError if the requests, or a key, would go unencrypted to another machine.
    """
    address = address_of(url, OPTION)
    if not is_private(address):
        raise LocalError(
            f"{OPTION} would send prompts unencrypted to {excerpt(address.host)}; give an https:// address, or a "
            f"server on this machine"
        )
    require_safe(key, address, OPTION)
    return httpx.URL(str(address).rstrip("/").removesuffix("/v1"))


class Connection:
    """Sends requests to one server, one at a time."""

    def __init__(self, url: str, key: str | None) -> None:
        """Raises LocalError as `base_of` does."""
        base = base_of(url, key)
        self.place = place_of(base)
        # Each request has a connection of its own: a server closes what is idle between two rounds.
        self._client = partial(client_of, base, key, seconds=REQUEST_SECONDS)
        self.allow(REQUEST_SECONDS)

    def allow(self, seconds: float) -> None:
        """Set the deadline of the requests from now on: `seconds` for all of them together."""
        self._seconds = min(seconds, REQUEST_SECONDS)
        self._until = time.monotonic() + self._seconds

    def get(self, path: str) -> Any:
        """Return the JSON at a path that the server answers without work. Raises ServerFailed."""
        return _parsed(self._exchange("GET", path, None, SHORT_REPLY))

    def post(self, path: str, body: dict[str, Any], *, most: int) -> Any:
        """Send a request. Return the JSON of the reply, which has at most `most` bytes. Raises ServerFailed."""
        return _parsed(self._exchange("POST", path, body, most))

    def order(self, path: str, body: dict[str, Any]) -> None:
        """Send an order. Raises ServerFailed if the status or the JSON of the reply says that the server refuses it."""
        data = self._exchange("POST", path, body, SHORT_REPLY)
        try:
            reply = json.loads(data)
        except (ValueError, RecursionError):
            return  # vLLM answers in plain text
        if isinstance(reply, dict) and reply.get("success") is False:
            raise ServerFailed(f"it refuses {path} ({sentence_of(data)})", _DONE)

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None, most: int) -> bytes:
        result = trio.run(self._reply_or_death, method, path, body, most)
        if isinstance(result, ServerFailed):
            raise result
        return result

    async def _reply_or_death(
        self, method: str, path: str, body: dict[str, Any] | None, most: int
    ) -> bytes | ServerFailed:
        """Return the reply, or a failure: the request ends first, or the watch on the health of the server does."""
        ended: list[bytes | ServerFailed] = []

        async def first(task: Callable[[], Awaitable[bytes | ServerFailed]]) -> None:
            ended.append(await task())
            nursery.cancel_scope.cancel()

        async with self._client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(first, partial(self._reply, client, method, path, body, most))
            nursery.start_soon(first, partial(self._death, client, path))
        return ended[0]

    async def _reply(
        self, client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None, most: int
    ) -> bytes | ServerFailed:
        left = max(0.0, self._until - time.monotonic())
        quick = method == "GET" and left > QUICK_SECONDS
        try:
            seconds = QUICK_SECONDS if quick else left
            response, data = await exchange(client, method, path, body, seconds=seconds, most=most)
        except ReplyTooLong:
            return ServerFailed(f"its reply to {path} is longer than {most} bytes")
        except trio.TooSlowError:
            if quick:
                return ServerFailed(f"its reply to {path} took longer than {QUICK_SECONDS:g} s")
            return ServerLate(f"its reply to {path} took longer than the {self._seconds:g} s for all of a round")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return ServerFailed(f"the request {path} failed: {line_of(error)}")
        if response.status_code != _DONE:
            said = sentence_of(data) or "without a word"
            return ServerFailed(f"it refuses {path} ({response.status_code}: {said})", response.status_code)
        return data

    async def _death(self, client: httpx.AsyncClient, path: str) -> ServerFailed:
        """Ask for the health of the server again and again. Return a failure when SICK_ANSWERS requests in a row have
        failed. A server without /health counts as alive.
        """
        problems: list[str] = []
        while len(problems) < SICK_ANSWERS:
            await trio.sleep(HEALTH_EVERY)
            problem = await self._sickness(client)
            problems = [*problems, problem] if problem else []
        return ServerFailed(f"it does not answer {path}, and its /health {problems[-1]}")

    async def _sickness(self, client: httpx.AsyncClient) -> str:
        """Ask for the health once. Return the problem in words that follow `/health`; empty if there is none."""
        try:
            response, data = await exchange(client, "GET", "/health", None, seconds=HEALTH_SECONDS, most=SHORT_REPLY)
        except ReplyTooLong:
            return ""
        except trio.TooSlowError:
            return f"does not answer within {HEALTH_SECONDS:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"cannot be asked ({line_of(error)})"
        if response.status_code < 500 or response.status_code == _NOT_IMPLEMENTED:
            return ""
        return f"says {response.status_code} ({sentence_of(data) or 'without a word'})"


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        start = excerpt(data[:400].decode("utf-8", "replace"), 120)
        raise ServerFailed(f"its reply is not JSON, it begins {start!r}") from None
