"""The requests to the sandbox, and the checks of its replies.

A reply comes from a process that has read peers' text. So the zygote checks its shape, and the node checks it again:
the expected number of items, each a prompt, a digest, one level per completion and a worked example, or a text that
says why the item failed. For an item that its child did not finish, the zygote writes the cause.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sapo_node.tasks.task import Task
from sapo_protocol import AnswerKind
from sapo_protocol.limits import MAX_GROUPS

MAX_PROMPT = 32_768
"""Characters of a prompt, at most. An item with a longer prompt fails closed."""

MAX_EXAMPLE = 4_096
"""Characters of a worked example, at most. An item with a longer one fails closed."""

MAX_REASON = 300
"""Characters of the reason for which an item failed, at most."""

MAX_BATCH = MAX_GROUPS
"""Items that one child scores, at most: the groups of one rollout. The main process decodes a reply at once, and gossip
waits meanwhile, so a reply must be small."""

MAX_RESULT = 12 * (MAX_PROMPT + MAX_EXAMPLE) + 256
"""Bytes of one result, at most. JSON needs up to 12 bytes per character of the prompt and of the example; digest and
levels need 256."""

MAX_REPLY = MAX_RESULT * MAX_BATCH
"""Bytes of a reply, at most."""


CAUSES = {
    "fork": "the system can start no more processes",
    "died": "the process that scored it died",
    "timeout": "it, or its batch, took too much processor time",
    "malformed": "the process that scored it wrote something that is no result",
    "no_sandbox": "the process that should have scored it could not confine itself",
}
"""Why the zygote has no result for an item, for the log."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Halves of a surrogate pair. JSON can hold one alone, but then the text cannot be encoded as UTF-8."""


class MalformedReplyError(ValueError):
    """A reply does not have the shape that its request allows."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One task to rebuild, and the completions to score. Without completions the sandbox only rebuilds the task."""

    dataset: str
    config: Mapping[str, Any]
    seed: int
    completions: tuple[str, ...]
    example: bool = False
    """True if to return a worked example, too."""
    task: Task | None = None
    """The task itself, if the node read it from a file. The sandbox can open no file."""
    levels: int = 1
    """L of the task, the level of a correct completion."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A task that the sandbox rebuilt, and the levels that it computed."""

    prompt: str
    digest: bytes
    """SHA-256 of prompt and answer, to compare with the digest of the sender."""
    levels: tuple[int, ...]
    """The level of each completion, 0 to L, in the order of the completions."""
    example: str = ""
    """A correct completion of the task, if the request asked for one and the sandbox knows one."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An item that failed closed."""

    cause: str
    """A key of CAUSES, or `task` if the item itself is at fault."""
    reason: str


def encode_requests(batch: Sequence[ScoreRequest]) -> list[list[Any]]:
    """Return the batch as JSON."""
    return [
        [
            *(item.dataset, dict(item.config), item.seed, list(item.completions), item.example),
            *(_encode_task(item.task), item.levels),
        ]
        for item in batch
    ]


def _encode_task(task: Task | None) -> list[Any] | None:
    return None if task is None else [task.dataset, task.prompt, task.answer, dict(task.metadata), task.answers]


def decode_requests(items: Sequence[Sequence[Any]]) -> list[ScoreRequest]:
    """Return the batch from JSON. The node itself made the JSON, so this does not check its shape."""
    return [
        ScoreRequest(dataset, config, seed, tuple(texts), asked, _decode_task(task), levels)
        for dataset, config, seed, texts, asked, task, levels in items
    ]


def _decode_task(value: Sequence[Any] | None) -> Task | None:
    if value is None:
        return None
    dataset, prompt, answer, metadata, answers = value
    return Task(dataset, prompt, answer, metadata, AnswerKind(answers))


def encode_result(result: Scored | str) -> list[str] | str:
    """Return one result as JSON: what the sandbox found, or the reason for which the item failed."""
    if isinstance(result, str):
        return result[:MAX_REASON]
    return [result.prompt, result.digest.hex(), bytes(result.levels).hex(), result.example]


def encode_line(result: Scored | str) -> bytes:
    """Return the line that a child writes for one result."""
    return json.dumps(encode_result(result)).encode("ascii") + b"\n"


def read_results(chunks: Iterable[bytes], batch: Sequence[ScoreRequest]) -> Iterator[Any]:
    """Yield the results in the lines that a child writes, as JSON. There are fewer than items if it stops early.

    Raises MalformedReplyError at the first line of another shape, and before a line grows beyond MAX_RESULT. This
    parses one line at a time, so that its memory is bounded whatever the child writes.
    """
    missing = iter(batch)
    unfinished = b""
    for chunk in chunks:
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for line in lines:
            result = _parse_line(line)
            item = next(missing, None)
            if item is None:
                raise MalformedReplyError("more results than items")
            _decode_line(result, item)
            yield result
        if len(unfinished) > MAX_RESULT:
            raise MalformedReplyError(f"a result of more than {MAX_RESULT} bytes")


def _parse_line(line: bytes) -> Any:
    if len(line) > MAX_RESULT:
        raise MalformedReplyError(f"a result of more than {MAX_RESULT} bytes")
    try:
        # json guesses the encoding of bytes and imports its codec. The locked-down zygote can import no module.
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedReplyError("a result is not JSON") from error


def decode_results(value: object, batch: Sequence[ScoreRequest]) -> list[Scored | Failed]:
    """Return the result of each item. Raises MalformedReplyError for another shape."""
    if not isinstance(value, list) or len(value) != len(batch):
        raise MalformedReplyError("not one result per item")
    return [_decode_result(result, item) for result, item in zip(value, batch, strict=True)]


def _decode_result(result: object, item: ScoreRequest) -> Scored | Failed:
    match result:
        case [str(cause)] if cause in CAUSES:
            return Failed(cause, CAUSES[cause])
        case _:
            found = _decode_line(result, item)
            return Failed("task", found) if isinstance(found, str) else found


def require_limits(prompt: str, example: str) -> None:
    """Raise MalformedReplyError if a prompt or a worked example is too long or is not Unicode text.

    A child checks each item by this, so that an item beyond a limit fails alone. The zygote and the node check the
    child by it.
    """
    for text, name, most in ((prompt, "prompt", MAX_PROMPT), (example, "worked example", MAX_EXAMPLE)):
        if len(text) > most:
            raise MalformedReplyError(f"its {name} has {len(text)} characters, more than {most}")
        if not text.isascii() and _SURROGATE.search(text):
            raise MalformedReplyError(f"its {name} is not Unicode text")


def _decode_line(result: object, item: ScoreRequest) -> Scored | str:
    match result:
        case str(reason):
            if len(reason) > MAX_REASON:
                raise MalformedReplyError("the reason for a failure is out of bounds")
            return reason
        case [str(prompt), str(digest), str(levels), str(example)]:
            require_limits(prompt, example)
            found = tuple(_bytes(levels, len(item.completions), "one level per completion"))
            if max(found, default=0) > item.levels:
                raise MalformedReplyError("a level is out of bounds")
            return Scored(prompt, _bytes(digest, 32, "a digest"), found, example)
        case _:
            raise MalformedReplyError("a result is neither a reason nor prompt, digest, levels and example")


def _bytes(text: str, size: int, what: str) -> bytes:
    if len(text) != 2 * size or not set(text) <= set("0123456789abcdef"):
        raise MalformedReplyError(f"not {what} in hex")
    return bytes.fromhex(text)
