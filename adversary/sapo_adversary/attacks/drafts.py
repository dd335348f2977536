"""A flawless round taken apart, and functions that spoil it in one place. Each returns the bytes of a message."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import cbor2

from sapo_adversary.attacks.forms import Form, encode_as
from sapo_adversary.attacks.kit import Group, Key, Kit
from sapo_protocol import encode_message

Path = tuple[str | int, ...]
MISSING = object()
"""In place of a value: the key is left out."""
_MARK = "#@"


class Draft:
    """A flawless round as trees of values that can be changed."""

    def __init__(self, kit: Kit, key: Key, epoch: int, counter: int, *, groups: int = 2) -> None:
        self.kit, self.key = kit, key
        self.parts = kit.flawless(key, epoch, counter, groups)
        self.payload = kit.payload(epoch, counter, self.parts)
        self.header: dict[str, Any] = cbor2.loads(self.payload)
        self.body: dict[str, Any] = cbor2.loads(self.parts[0].body)

    def of_payload(self, payload: bytes) -> bytes:
        """The message with another payload and a valid signature."""
        return self.kit.signed(self.key, payload, self.parts)

    def of_body(self, body: bytes) -> bytes:
        """The message with another first body; the header has the hash of that body."""
        groups: list[Group] = [self.parts[0].carrying(body), *self.parts[1:]]
        return self.kit.message(self.key, self.header["epoch"], self.header["counter"], groups)

    @property
    def message(self) -> bytes:
        """The flawless message."""
        return self.of_payload(self.payload)

    @property
    def envelope(self) -> bytes:
        """The first part of the message."""
        return bytes(cbor2.loads(self.message)[0])

    def around(self, envelope: bytes) -> bytes:
        """The message with another envelope."""
        return encode_message(envelope, tuple(part.body for part in self.parts))


def message_cut(draft: Draft, permille: int) -> bytes:
    return draft.message[: len(draft.message) * permille // 1000]


def beginning(draft: Draft, first: int, second: int | None = None) -> bytes:
    message = bytearray(draft.message)
    message[0] = first
    message[1] = message[1] if second is None else second
    return bytes(message)


def message_said(draft: Draft, form: Form) -> bytes:
    return encode_as(cbor2.loads(draft.message), form)


def with_header(draft: Draft, path: Path, value: Any) -> bytes:
    return draft.of_payload(dumps(_put(draft.header, path, value)))


def header_said(draft: Draft, form: Form) -> bytes:
    return draft.of_payload(encode_as(draft.header, form))


def header_cut(draft: Draft, percent: int) -> bytes:
    return draft.of_payload(draft.payload[: len(draft.payload) * percent // 100])


def with_body(draft: Draft, path: Path, value: Any) -> bytes:
    return draft.of_body(dumps(_put(draft.body, path, value)))


def body_said(draft: Draft, form: Form) -> bytes:
    return draft.of_body(encode_as(draft.body, form))


def body_cut(draft: Draft, percent: int) -> bytes:
    body = draft.parts[0].body
    return draft.of_body(body[: 1 + len(body) * percent // 100])


def with_byte(draft: Draft, place: int) -> bytes:
    envelope = bytearray(draft.envelope)
    envelope[place] ^= 1
    return draft.around(bytes(envelope))


def reshaped(draft: Draft, protected: Any = None, unprotected: Any = None, payload: Any = MISSING) -> bytes:
    tag = cbor2.loads(draft.envelope)
    old_protected, old_unprotected, old_payload, signature = tag.value
    headers = {**cbor2.loads(old_protected), **(protected or {})}
    parts = [
        cbor2.dumps(headers) if protected else old_protected,
        unprotected or old_unprotected,
        old_payload if payload is MISSING else payload,
        signature,
    ]
    return draft.around(cbor2.dumps(cbor2.CBORTag(18, parts)))


def with_some_bodies(draft: Draft, present: Sequence[bool]) -> bytes:
    bodies = tuple(part.body if there else None for part, there in zip(draft.parts, present, strict=True))
    return encode_message(draft.envelope, bodies)


def claiming(draft: Draft, flips: int) -> bytes:
    """A message with honest claims, whose texts earn the rewards that the bits of `flips` name."""
    kit, key, epoch, counter = draft.kit, draft.key, draft.header["epoch"], draft.header["counter"]
    rewards = [bool(flips >> place & 1) for place in range(kit.manifest.completions)]
    tasks = [kit.task(key, epoch, counter, k) for k in range(2)]
    return kit.message(key, epoch, counter, [kit.group(task, kit.answers(task, rewards), rewards) for task in tasks])


def _put(tree: Any, path: Path, value: Any) -> Any:
    """A copy of a tree with another value at a path, or without the key where the value is MISSING."""
    changed = place = deepcopy(tree)
    for step in path[:-1]:
        place = place[step]
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def dumps(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


def badly_said(draft: Draft, where: str, content: str) -> bytes:
    """A message with a string that is not UTF-8, with the length that its head states."""
    bad = bytes.fromhex(content)
    mark = _MARK * len(bad)
    if where == "header":
        payload = dumps(_put(draft.header, ("x",), {"a": mark}))
        return draft.of_payload(payload.replace(mark.encode(), bad * 2))
    body = dumps(_put(draft.body, ("completions", 0, "turns", 0), mark))
    return draft.of_body(body.replace(mark.encode(), bad * 2))
