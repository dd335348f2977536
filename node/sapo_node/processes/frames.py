"""Framed messages between the processes of one node: 4-byte little-endian length, then UTF-8 JSON.

Neither side writes, reads or allocates more than the caller's limit. Numbers are finite. All other bytes raise
FrameError. The format is not pickle, because a peer's text may have taken control of the child that scores it.
"""

import json
import math
import os
from typing import TYPE_CHECKING, Any, NoReturn

from sapo_protocol.errors import LocalError

if TYPE_CHECKING:
    import trio  # the sandbox does without: importing it is a third of its start

MAX_FRAME = 64 * 1024 * 1024
"""Upper limit of any frame in bytes. Callers pass lower limits."""

_HEADER = 4


class FrameError(LocalError):
    """Bytes from a pipe, or a value for it, are not a frame within the limit."""


def read_frame(fd: int, limit: int = MAX_FRAME) -> Any | None:
    """Block until one frame has arrived on `fd`. None if the input ends before a frame begins.

    Raises FrameError if the input ends inside a frame, the length is above `limit`, or the body is not plain JSON.
    """
    header = _read_exactly(fd, _HEADER)
    if header is None:
        return None
    body = _read_exactly(fd, _body_size(header, limit))
    if body is None:
        raise FrameError("the input ended between a frame's length and its body")
    return _decode(body)


def write_frame(fd: int, value: Any, limit: int = MAX_FRAME) -> None:
    """Block until `value` is written to `fd`. Raises FrameError, before the first byte, if it exceeds `limit`."""
    data = memoryview(_encode(value, limit))
    while data:
        data = data[os.write(fd, data) :]


async def receive_frame(stream: "trio.abc.ReceiveStream", limit: int = MAX_FRAME) -> Any | None:
    """One frame from a trio stream. None if the stream ends before a frame begins. Raises as `read_frame` does."""
    header = await _receive_exactly(stream, _HEADER)
    if header is None:
        return None
    body = await _receive_exactly(stream, _body_size(header, limit))
    if body is None:
        raise FrameError("the input ended between a frame's length and its body")
    return _decode(body)


async def send_frame(stream: "trio.abc.SendStream", value: Any, limit: int = MAX_FRAME) -> None:
    """Send `value` as one frame. Raises FrameError, before the first byte, if it exceeds `limit`."""
    await stream.send_all(_encode(value, limit))


def _encode(value: Any, limit: int) -> bytes:
    if value is None:
        raise FrameError("a frame is never null: None means the end of input")
    try:
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"a frame's value is not plain JSON: {error}") from error
    if len(body) > limit:
        raise FrameError(f"a frame of {len(body)} bytes exceeds its limit of {limit}")
    return len(body).to_bytes(_HEADER, "little") + body


def _decode(body: bytes) -> Any:
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_parse_finite_float)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame's body is not plain JSON: {error}") from error
    if value is None:
        raise FrameError("a frame is never null: None means the end of input")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number overflows")
    return number


def _body_size(header: bytes, limit: int) -> int:
    size = int.from_bytes(header, "little")
    if size > limit:
        raise FrameError(f"a frame announces {size} bytes, over its limit of {limit}")
    return size


def _read_exactly(fd: int, size: int) -> bytes | None:
    """`size` bytes, or None if the input ends before the first of them."""
    data = bytearray()
    while len(data) < size:
        chunk = os.read(fd, min(size - len(data), 1 << 20))
        if not chunk:
            break
        data += chunk
    return _whole(data, size)


async def _receive_exactly(stream: "trio.abc.ReceiveStream", size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = await stream.receive_some(min(size - len(data), 1 << 20))
        if not chunk:
            break
        data += chunk
    return _whole(data, size)


def _whole(data: bytearray, size: int) -> bytes | None:
    if len(data) == size:
        return bytes(data)
    if not data:
        return None
    raise FrameError(f"the input ended after {len(data)} of {size} bytes")
