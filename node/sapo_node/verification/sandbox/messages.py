"""What the node asks of the sandbox and what it believes of the answer.

The answer comes from a process that has handled peers' text, so its shape is checked twice, in the zygote and again in
the node: the right number of items, each None or a question, a digest and one reward per completion.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_PROMPT = 32_768
"""Characters of a question; a longer one fails closed."""

MAX_BATCH = 128
"""Items scored by one fork."""

MAX_RESULT = 12 * MAX_PROMPT + 256
"""Bytes of one result. JSON writes a character of the question in at most 12 bytes; digest and rewards fit into 256."""

MAX_REPLY = MAX_RESULT * MAX_BATCH
"""Bytes of a reply."""


_SURROGATE = re.compile("[\ud800-\udfff]")
"""JSON can name half of a character; nothing can be done with one."""


class MalformedReplyError(ValueError):
    """A reply is not of the one shape that its request allows."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One task to rebuild and its completions to score; without completions only the task is rebuilt."""

    dataset: str
    config: Mapping[str, Any]
    seed: int
    completions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A task rebuilt here and the verdict on each completion."""

    prompt: str
    digest: bytes
    """SHA-256 over question and answer, to compare with the sender's."""
    rewards: tuple[bool, ...]
    """One per completion, in their order."""


def encode_requests(batch: Sequence[ScoreRequest]) -> list[list[Any]]:
    """The batch as JSON."""
    return [[item.dataset, dict(item.config), item.seed, list(item.completions)] for item in batch]


def decode_requests(items: Sequence[Sequence[Any]]) -> list[ScoreRequest]:
    """The batch again, in the zygote; it comes from the node itself, so its shape is taken as given."""
    return [ScoreRequest(dataset, config, seed, tuple(texts)) for dataset, config, seed, texts in items]


def encode_result(scored: Scored | None) -> list[str] | None:
    """One result as JSON."""
    if scored is None:
        return None
    return [scored.prompt, scored.digest.hex(), "".join("1" if reward else "0" for reward in scored.rewards)]


def encode_line(scored: Scored | None) -> bytes:
    """One result as the line that a child writes for it."""
    return json.dumps(encode_result(scored)).encode("ascii") + b"\n"


def collect_results(chunks: Iterable[bytes], expected: Sequence[int]) -> list[Any]:
    """The results in the lines that a child wrote, still as JSON; fewer than expected when the child stopped early.

    `expected` has the number of completions of each item. Raises MalformedReplyError at the first line of another
    shape, and before a line grows beyond MAX_RESULT. Only one line is parsed at a time: the memory that this takes is
    bounded whatever the child writes.
    """
    results: list[Any] = []
    unfinished = b""
    for chunk in chunks:
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for line in lines:
            results.append(_parse_line(line))
            if len(results) > len(expected):
                raise MalformedReplyError("more results than items")
            _decode_result(results[-1], expected[len(results) - 1])
        if len(unfinished) > MAX_RESULT:
            raise MalformedReplyError(f"a result of more than {MAX_RESULT} bytes")
    return results


def _parse_line(line: bytes) -> Any:
    if len(line) > MAX_RESULT:
        raise MalformedReplyError(f"a result of more than {MAX_RESULT} bytes")
    try:
        # Of bytes json guesses the encoding, and the module of an encoding cannot be imported in the locked zygote.
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedReplyError("a result is no JSON") from error


def decode_results(value: object, expected: Sequence[int]) -> list[Scored | None]:
    """Results for items with `expected` numbers of completions. Raises MalformedReplyError on any other shape."""
    if not isinstance(value, list) or len(value) != len(expected):
        raise MalformedReplyError("not one result per item")
    return [_decode_result(item, completions) for item, completions in zip(value, expected, strict=True)]


def _decode_result(item: object, completions: int) -> Scored | None:
    match item:
        case None:
            return None
        case [str(prompt), str(digest), str(rewards)]:
            if len(prompt) > MAX_PROMPT or len(rewards) != completions or not set(rewards) <= {"0", "1"}:
                raise MalformedReplyError("a question or its rewards are out of bounds")
            if not prompt.isascii() and _SURROGATE.search(prompt):
                raise MalformedReplyError("a question that is no Unicode text")
            if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise MalformedReplyError("a digest is not 32 bytes in hex")
            return Scored(prompt, bytes.fromhex(digest), tuple(reward == "1" for reward in rewards))
        case _:
            raise MalformedReplyError("a result is neither none nor question, digest and rewards")
