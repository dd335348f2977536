"""One HTTP request and its reply, with a most number of bytes and of seconds.

The seconds count for the whole exchange. The time-outs of httpx are for one read each: a server that sends a byte of a
header now and then, or one interim response after another, never reaches them.
"""

from typing import Any

import httpx
import trio

from sapo_protocol import LocalError


class ReplyTooLong(LocalError):
    """The reply has more bytes than it may have."""


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL | str,
    body: dict[str, Any] | None,
    *,
    seconds: float,
    most: int,
) -> tuple[httpx.Response, bytes]:
    """Send a request, and return the reply and its bytes.

    Raises trio.TooSlowError after these seconds, ReplyTooLong, and the errors of httpx.
    """
    data = bytearray()
    with trio.fail_after(seconds):
        async with client.stream(method, url, json=body) as response:
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > most:
                    raise ReplyTooLong(f"the reply is longer than {most} bytes")
    return response, bytes(data)
