"""Frames: what goes in comes out, and nothing else gets through."""

import os
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sapo_node.processes.frames import FrameError, read_frame, receive_frame, send_frame, write_frame

plain_json = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner | st.none()) | st.dictionaries(st.text(), inner | st.none()),
    max_leaves=12,
)


def read_bytes(data: bytes, limit: int = 1000) -> Any:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    try:
        return read_frame(reader, limit)
    finally:
        os.close(reader)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


@given(plain_json)
def test_a_frame_comes_out_as_it_went_in(value: Any) -> None:
    reader, writer = os.pipe()
    write_frame(writer, value)
    os.close(writer)
    assert read_frame(reader) == value
    assert read_frame(reader) is None
    os.close(reader)


async def test_a_frame_crosses_a_trio_stream() -> None:
    near, far = trio.testing.memory_stream_pair()
    await send_frame(near, {"text": "grün \ud800 \u2227"})
    await near.aclose()
    assert await receive_frame(far) == {"text": "grün \ud800 \u2227"}
    assert await receive_frame(far) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e999]",
        b"\xff\xfe",
        b"{'a':1}",
        b"[" * 20_000,
        b"1" * 5000,
        b"{} {}",
    ],
)
def test_a_body_that_is_not_our_json_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        read_bytes(framed(body), limit=1_000_000)


@pytest.mark.parametrize("data", [b"\x01", b"\x05\x00\x00\x00", b"\x05\x00\x00\x00[1", framed(b"[1]")[:-1]])
def test_an_end_inside_a_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        read_bytes(data)


async def test_an_end_inside_a_frame_is_refused_on_a_trio_stream() -> None:
    near, far = trio.testing.memory_stream_pair()
    await near.send_all(b"\x05\x00\x00\x00[1")
    await near.aclose()
    with pytest.raises(FrameError):
        await receive_frame(far)


def test_an_oversize_length_is_refused_before_its_body_is_read() -> None:
    with pytest.raises(FrameError, match="over its limit of 1000"):
        read_bytes(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("value", [None, float("nan"), [float("inf")], {"a": b"bytes"}, "x" * 1000])
def test_what_does_not_fit_is_refused_before_the_first_byte(value: Any) -> None:
    reader, writer = os.pipe()
    with pytest.raises(FrameError):
        write_frame(writer, value, limit=1000)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
