"""HTTP to an inference server, with limits: each reply has a most number of bytes and of seconds, and is plain JSON.

The connection follows no redirect, and sends nothing unencrypted to another machine.
"""

import json
from functools import partial
from typing import Any

import httpx
import trio

from sapo_node.contributors.address import address_of, is_private, place_of, require_safe
from sapo_node.contributors.exchange import ReplyTooLong, client_of, exchange
from sapo_protocol import LocalError
from sapo_protocol.files import refuse_constant
from sapo_protocol.printable import excerpt, line_of

OPTION = "--generate"
REQUEST_SECONDS = 600.0
"""Seconds for a request with its reply."""
SHORT_REPLY = 2**20
"""Bytes of a reply that holds no completions, at most."""


class ServerFailed(LocalError):
    """The server did not answer, or not as it should; the message says why."""


def base_of(url: str, key: str | None) -> httpx.URL:
    """Return the address below which the server has its paths, without the `/v1` of one of them.

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

    def get(self, path: str) -> Any:
        """Return the JSON at a path. Raises ServerFailed."""
        return _parsed(self._exchange("GET", path, None, SHORT_REPLY))

    def post(self, path: str, body: dict[str, Any], *, most: int) -> Any:
        """Return the JSON with which the server answers, of at most `most` bytes. Raises ServerFailed."""
        return _parsed(self._exchange("POST", path, body, most))

    def order(self, path: str, body: dict[str, Any]) -> None:
        """Have the server do something. What it answers counts only by its status. Raises ServerFailed."""
        self._exchange("POST", path, body, SHORT_REPLY)

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None, most: int) -> bytes:
        try:
            response, data = trio.run(self._ask, method, path, body, most)
        except ReplyTooLong:
            raise ServerFailed(f"its reply to {path} is longer than {most} bytes") from None
        except trio.TooSlowError:
            raise ServerFailed(f"its reply to {path} took longer than {REQUEST_SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerFailed(f"the request {path} failed: {line_of(error)}") from error
        if response.status_code != 200:
            raise ServerFailed(f"it refuses {path} ({response.status_code}: {_start(data)!r})")
        return data

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, most: int
    ) -> tuple[httpx.Response, bytes]:
        async with self._client() as client:
            return await exchange(client, method, path, body, seconds=REQUEST_SECONDS, most=most)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise ServerFailed(f"its reply is not JSON, it begins {_start(data)!r}") from None


def _start(data: bytes | bytearray) -> str:
    return excerpt(bytes(data[:400]).decode("utf-8", "replace"), 120)
