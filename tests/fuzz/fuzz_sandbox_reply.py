"""The sandbox's reply, on its whole way: a child's bytes, checked in the zygote, framed, and checked in the node."""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from harness import Source

from sapo_node.processes.frames import FrameError, read_frame, write_frame
from sapo_node.verification.sandbox import sandbox as sandbox_module
from sapo_node.verification.sandbox.requests import (
    CAUSES,
    MAX_EXAMPLE,
    MAX_PROMPT,
    MAX_REASON,
    MAX_REPLY,
    Failed,
    MalformedReplyError,
    Scored,
    ScoreRequest,
    encode_result,
    read_results,
)

BATCHES = [
    [ScoreRequest("chain_sum", {}, seed, ("",) * completions) for seed, completions in enumerate(shape)]
    for shape in ((), (0,), (4,), (1, 4, 2))
]
_PIPE = 60_000
"""Bytes that a pipe holds without a reader."""


def fuzz(data: bytes) -> None:
    source = Source(data)
    batch = BATCHES[source.below(len(BATCHES))]
    (from_child, from_zygote)[source.below(2)](source, batch)


def from_child(source: Source, batch: list[ScoreRequest]) -> None:
    data = source.rest()[: _PIPE // 6]
    try:
        results = list(read_results([data], batch))
    except MalformedReplyError:
        return
    reader, writer = os.pipe()
    try:
        write_frame(writer, {"results": results}, MAX_REPLY)
        with contextlib.suppress(MalformedReplyError):
            check(read_frame(reader, MAX_REPLY), batch)
    finally:
        os.close(reader)
        os.close(writer)


def from_zygote(source: Source, batch: list[ScoreRequest]) -> None:
    """Bytes of the pipe itself, with their true length before them unless the input chooses otherwise."""
    framed = source.below(4)
    body = source.rest()[:_PIPE]
    reader, writer = os.pipe()
    try:
        os.write(writer, len(body).to_bytes(4, "little") + body if framed else body)
        os.close(writer)
        reply = read_frame(reader, MAX_REPLY)
        assert framed or reply is None or int.from_bytes(body[:4], "little") <= len(body) - 4
        check(reply, batch)
    except (FrameError, MalformedReplyError):
        pass
    finally:
        os.close(reader)


def check(reply: Any, batch: list[ScoreRequest]) -> None:
    results = sandbox_module._results(reply, batch)
    assert len(results) == len(batch)
    for item, scored in zip(batch, results, strict=True):
        if isinstance(scored, Failed):
            assert scored.cause in {*CAUSES, "task"}
            assert len(scored.reason) <= MAX_REASON
            continue
        assert len(scored.prompt) <= MAX_PROMPT
        assert len(scored.digest) == 32
        assert len(scored.levels) == len(item.completions)
        assert all(0 <= level <= item.levels for level in scored.levels)
        assert len(scored.example) <= MAX_EXAMPLE
        # A pool keeps the prompt and a tokenizer reads it and the example: both need text that has an encoding.
        assert scored.prompt.encode().decode() == scored.prompt
        assert scored.example.encode().decode() == scored.example


def seeds() -> Iterator[bytes]:
    for index, batch in enumerate(BATCHES):
        results = [
            encode_result(Scored("2 + 2 = ? \U0001f600", b"\xab" * 32, (1,) * len(i.completions), "4 \U0001f600"))
            for i in batch
        ]
        for each in (results, ["\U0001f600 failed"] * len(batch), [["timeout"]] * len(batch)):
            yield bytes([index, 0]) + b"".join(json.dumps(one).encode() + b"\n" for one in each)
            yield bytes([index, 0]) + b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in each)
            yield bytes([index, 1, 1]) + json.dumps({"results": each}).encode()
        yield from (bytes([index, 1, 1]) + json.dumps({"results": each}).encode() for each in near_misses(results))
        yield bytes([index, 1, 1]) + json.dumps({"results": [["no cause"]] * len(batch)}).encode()
        yield bytes([index, 1, 0]) + b"\x20\x00\x00\x00" + b'{"results": ["timeout"]}'
        yield bytes([index, 1, 0]) + b"\x04\x00\x00\x00null"


def near_misses(results: list[Any]) -> Iterator[Any]:
    """Results with one fault each."""
    yield [*results, None]
    yield {"results": results}
    if results:
        yield results[1:]
        prompt, digest, levels, example = results[0]
        for other in (
            [prompt, digest, levels + "00", example],
            [prompt, digest, levels[:-1] + "2", example],
            [prompt, digest[2:], levels, example],
            [prompt, "g" * 64, levels, example],
            [prompt, digest, levels],
            [prompt, digest, levels, None],
            [prompt, digest, levels, "\ud800"],
            [1, digest, levels, example],
        ):
            yield [other, *results[1:]]
