"""Messages spoilt in one place each, with the reason to refuse it, and unusual ones that are right."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random
from typing import Any

import cbor2

from sapo_adversary.attacks.forms import FORMS, Form, encode_as
from sapo_adversary.attacks.kit import Group, Key, Kit
from sapo_protocol import encode_message

Path = tuple[str | int, ...]
_MISSING = object()
_WRONG: Sequence[Any] = ("text", b"bytes", -1, 1.5, None, True, [], {}, 2**64, cbor2.CBORTag(1, 0), cbor2.undefined)
"""One of each type, and so of the wrong one nearly everywhere."""
_NOT_UTF8 = ("80", "c080", "e282", "eda080", "f4908080", "fffe")
"""A lone continuation, an overlong zero, half a character, a surrogate, one past the last, and a mark of byte order."""
_MARK = "#@"

HEADER_FIELDS: Mapping[Path, type | None] = {
    ("epoch",): None,
    ("counter",): None,
    ("groups",): None,
    ("groups", 0): None,
    ("groups", 0, "body"): None,
    ("groups", 0, "claims"): None,
    ("groups", 0, "claims", 0): bool,
    ("groups", 0, "digest"): None,
    ("x",): dict,
}
"""Fields of a header, and the type that no value of `_WRONG` spoils."""
BODY_FIELDS: Mapping[Path, type | None] = {
    ("completions",): None,
    ("completions", 0): None,
    ("completions", 0, "text"): str,
    ("completions", 0, "finish"): None,
    ("model",): str,
    ("x",): dict,
}


class Draft:
    """A flawless round, taken apart into trees that can be spoilt."""

    def __init__(self, kit: Kit, key: Key, epoch: int, counter: int, *, groups: int = 2) -> None:
        self.kit, self.key = kit, key
        self.parts = kit.flawless(key, epoch, counter, groups)
        self.payload = kit.payload(epoch, counter, self.parts)
        self.header: dict[str, Any] = cbor2.loads(self.payload)
        self.body: dict[str, Any] = cbor2.loads(self.parts[0].body)

    def of_payload(self, payload: bytes) -> bytes:
        """The message of another payload, truly signed."""
        return self.kit.signed(self.key, payload, self.parts)

    def of_body(self, body: bytes) -> bytes:
        """The message of another first body, whose hash the header names."""
        groups: list[Group] = [self.parts[0].carrying(body), *self.parts[1:]]
        return self.kit.message(self.key, self.header["epoch"], self.header["counter"], groups)

    @property
    def message(self) -> bytes:
        """As it should be."""
        return self.of_payload(self.payload)

    @property
    def envelope(self) -> bytes:
        """The first part of the message."""
        return bytes(cbor2.loads(self.message)[0])

    def around(self, envelope: bytes) -> bytes:
        """The message of another envelope."""
        return encode_message(envelope, tuple(part.body for part in self.parts))


@dataclass(frozen=True, slots=True)
class Case:
    """One message of the corpus."""

    name: str
    refused: str
    """The reason for which a node must refuse it; empty where it must be accepted."""
    make: Callable[[Draft], bytes]
    groups: int = 2


def corpus(completions: int, longest: int) -> list[Case]:
    """All cases for a swarm with so many completions a group, of so many bytes: seven in ten must be refused."""
    broken = [*_frames(), *_envelopes(), *_headers(completions), *_bodies(longest)]
    valid = [*_unusual(completions, longest)]
    return broken + valid[: len(broken) * 3 // 7]


def _frames() -> Iterator[Case]:
    rng = Random("frames")  # noqa: S311 - a corpus
    for cut in sorted(rng.sample(range(1, 999), 30)):
        yield Case(f"message cut at {cut / 10} %", "frame", partial(_cut, permille=cut))
    for first in (0x00, 0x40, 0x60, 0x80, 0x81, 0x83, 0x98, 0x9F, 0xA1, 0xD2, 0xF6, 0xFF):
        yield Case(f"message that begins with {first:02x}", "frame", partial(_beginning, first=first))
    for kind in (0x19, 0x39, 0x79, 0x99, 0xB9, 0xD9, 0xF9, 0x5A, 0x5B, 0x5F):
        yield Case(f"envelope of type {kind:02x}", "frame", partial(_beginning, first=0x82, second=kind))
    yield Case("empty message", "frame", lambda _: b"")
    yield Case("bytes after the end", "frame", lambda d: d.message + b"\0")
    yield Case("the message twice", "frame", lambda d: d.message * 2)
    yield Case("one body as text", "frame", lambda d: cbor2.dumps([d.envelope, ["", d.parts[1].body]]))
    yield Case("bodies as a map", "frame", lambda d: cbor2.dumps([d.envelope, {"0": d.parts[0].body}]))
    yield Case("no bodies", "frame", lambda d: cbor2.dumps([d.envelope]))
    yield Case("a third element", "frame", lambda d: cbor2.dumps([d.envelope, [p.body for p in d.parts], 0]))
    for name, form in FORMS.items():
        if name not in ("long integers", "other key order", "repeated keys"):
            yield Case(f"message with {name}", "frame", partial(_message_said, form=form))
    yield Case("one body too few", "body", lambda d: encode_message(d.envelope, (d.parts[0].body,)))
    yield Case("one body too many", "body", lambda d: encode_message(d.envelope, (None, None, None)))
    yield Case("bodies exchanged", "body", lambda d: encode_message(d.envelope, (d.parts[1].body, d.parts[0].body)))
    yield Case("a body with a bit flipped", "body", lambda d: d.message[:-1] + bytes([d.message[-1] ^ 1]))
    yield Case("more than a message may have", "size", lambda d: d.around(d.envelope) + bytes(1_000_000))


def _envelopes() -> Iterator[Case]:
    for place in (*range(10), 42):
        yield Case(f"template byte {place} changed", "envelope", partial(_with_byte, place=place))
    for place in (10, 20, 41):
        yield Case(f"byte {place} of the key changed", "signature", partial(_with_byte, place=place))
    for place in (60, 100, -64, -33, -32, -1):
        yield Case(f"byte {place} of what is signed or signs changed", "signature", partial(_with_byte, place=place))
    yield Case("something in the unprotected header", "envelope", partial(_reshaped, unprotected={1: -19}))
    yield Case("alg EdDSA", "envelope", partial(_reshaped, protected={1: -8}))
    yield Case("alg ES256", "envelope", partial(_reshaped, protected={1: -7}))
    yield Case("a critical label", "envelope", partial(_reshaped, protected={2: [1]}))
    yield Case("a key of 31 bytes", "envelope", partial(_reshaped, protected={4: bytes(31)}))
    yield Case("a payload as text", "envelope", partial(_reshaped, payload="text"))
    yield Case("no payload", "envelope", partial(_reshaped, payload=None))
    yield Case("a signature of 63 bytes", "envelope", lambda d: d.around(d.envelope[:-1]))
    yield Case("a signature of 65 bytes", "envelope", lambda d: d.around(d.envelope + b"\0"))
    yield Case("an envelope of zeros", "envelope", lambda d: d.around(bytes(200)))
    yield Case("an envelope without its tag", "envelope", lambda d: d.around(d.envelope[1:]))
    yield Case("more than an envelope may have", "size", lambda d: d.of_payload(d.payload + bytes(2_000)))


def _cut(draft: Draft, permille: int) -> bytes:
    return draft.message[: len(draft.message) * permille // 1000]


def _beginning(draft: Draft, first: int, second: int | None = None) -> bytes:
    message = bytearray(draft.message)
    message[0] = first
    message[1] = message[1] if second is None else second
    return bytes(message)


def _message_said(draft: Draft, form: Form) -> bytes:
    return encode_as(cbor2.loads(draft.message), form)


def _with_header(draft: Draft, path: Path, value: Any) -> bytes:
    return draft.of_payload(_dumps(_put(draft.header, path, value)))


def _header_said(draft: Draft, form: Form) -> bytes:
    return draft.of_payload(encode_as(draft.header, form))


def _header_cut(draft: Draft, percent: int) -> bytes:
    return draft.of_payload(draft.payload[: len(draft.payload) * percent // 100])


def _with_completions(draft: Draft, completions: Sequence[Any]) -> bytes:
    return draft.of_body(_dumps({"completions": completions}))


def _with_body(draft: Draft, path: Path, value: Any) -> bytes:
    return draft.of_body(_dumps(_put(draft.body, path, value)))


def _body_said(draft: Draft, form: Form) -> bytes:
    return draft.of_body(encode_as(draft.body, form))


def _body_cut(draft: Draft, percent: int) -> bytes:
    body = draft.parts[0].body
    return draft.of_body(body[: 1 + len(body) * percent // 100])


def _with_byte(draft: Draft, place: int) -> bytes:
    envelope = bytearray(draft.envelope)
    envelope[place] ^= 1
    return draft.around(bytes(envelope))


def _reshaped(draft: Draft, protected: Any = None, unprotected: Any = None, payload: Any = _MISSING) -> bytes:
    tag = cbor2.loads(draft.envelope)
    old_protected, old_unprotected, old_payload, signature = tag.value
    headers = {**cbor2.loads(old_protected), **(protected or {})}
    parts = [
        cbor2.dumps(headers) if protected else old_protected,
        unprotected or old_unprotected,
        old_payload if payload is _MISSING else payload,
        signature,
    ]
    return draft.around(cbor2.dumps(cbor2.CBORTag(18, parts)))


def _headers(completions: int) -> Iterator[Case]:
    reason = "header"
    for path, name, value in _spoilt(HEADER_FIELDS):
        yield Case(f"header: {name}", reason, partial(_with_header, path=path, value=value))
    more: Sequence[tuple[str, Path, Any]] = (
        ("seventeen groups", ("groups",), [{"body": b"", "claims": [], "digest": b""}] * 17),
        ("a key too many", ("y",), 0),
        ("a key too many in a group", ("groups", 0, "y"), 0),
        ("a claim too few", ("groups", 0, "claims"), [True] * (completions - 1)),
        ("a claim too many", ("groups", 0, "claims"), [True] * (completions + 1)),
        ("a digest of 31 bytes", ("groups", 0, "digest"), bytes(31)),
        ("a hash of 33 bytes", ("groups", 0, "body"), bytes(33)),
        ("a counter past the last", ("counter",), 2**63),
        ("x of a byte too many", ("x",), {"a": bytes(252)}),
        ("x with a number as key", ("x",), {1: 2}),
        ("x with a fraction", ("x",), {"a": 0.5}),
        ("x nested too deep", ("x",), {"a": [[[[[[[[]]]]]]]]}),
    )
    for name, path, value in more:
        yield Case(f"header: {name}", reason, partial(_with_header, path=path, value=value))
    for content in _NOT_UTF8:
        yield Case(f"header: {content} in x", reason, partial(_badly_said, where="header", content=content))
    for name, form in FORMS.items():
        yield Case(f"header with {name}", reason, partial(_header_said, form=form))
    for cut in (0, 1, 5, 50, 90, 99):
        yield Case(f"header cut at {cut} %", reason, partial(_header_cut, percent=cut))
    yield Case("bytes after the header", reason, lambda d: d.of_payload(d.payload + b"\0"))
    for epoch in (0, 2**40, 2**64 - 1):
        yield Case(
            f"epoch {epoch}",
            "outside the epoch window",
            partial(_with_header, path=("epoch",), value=epoch),
        )


def _bodies(longest: int) -> Iterator[Case]:
    """Each in a round of one group: others of the round would be sound."""
    for case in _bad_bodies(longest):
        yield replace(case, groups=1)


def _bad_bodies(longest: int) -> Iterator[Case]:
    reason = "malformed body"
    for path, name, value in _spoilt(BODY_FIELDS):
        yield Case(f"body: {name}", reason, partial(_with_body, path=path, value=value))
    more: Sequence[tuple[str, Path, Any]] = (
        ("a key too many", ("y",), 0),
        ("a key too many in a completion", ("completions", 0, "y"), 0),
        ("a label too long", ("model",), "m" * 65),
        ("a completion too long", ("completions", 0, "text"), "t" * (longest + 1)),
        ("x of a byte too many", ("x",), {"a": bytes(252)}),
    )
    for name, path, value in more:
        yield Case(f"body: {name}", reason, partial(_with_body, path=path, value=value))
    yield Case(
        "body: a completion too few", reason, lambda d: d.of_body(_dumps({"completions": d.body["completions"][1:]}))
    )
    yield Case(
        "body: a completion too many", reason, lambda d: d.of_body(_dumps({"completions": d.body["completions"] * 2}))
    )
    for content in _NOT_UTF8:
        yield Case(f"body: {content} in a text", reason, partial(_badly_said, where="body", content=content))
    for name, form in FORMS.items():
        if name != "long integers":
            yield Case(f"body with {name}", reason, partial(_body_said, form=form))
    for cut in (1, 5, 50, 90, 99):
        yield Case(f"body cut at {cut} %", reason, partial(_body_cut, percent=cut))
    yield Case("bytes after the body", reason, lambda d: d.of_body(d.parts[0].body + b"\0"))


def _unusual(completions: int, longest: int) -> Iterator[Case]:
    """What must be accepted."""
    for groups in range(1, 17):
        yield Case(f"{groups} groups", "", lambda d: d.message, groups)
    extensions: Sequence[Any] = (
        {},
        {"a": bytes(251)},
        {"a": [[[[[[]]]]]]},
        {"a": 2**64 - 1},
        {"é": "\x00\ufeff\U0010ffff"},
    )
    for number, x in enumerate(extensions):
        yield Case(f"header with x {number}", "", partial(_with_header, path=("x",), value=x))
        yield Case(f"body with x {number}", "", partial(_with_body, path=("x",), value=x))
    texts = (
        "",
        "\0",
        "\ufeff",
        "é",
        "e\u0301",
        "\U0001f600",
        "\ufffd",
        "<answer>",
        "t" * 23,
        "t" * 24,
        "t" * 255,
        "t" * 256,
    )
    for number, text in enumerate((*texts, "t" * longest, "\u00e9" * (longest // 2))):
        yield Case(f"text {number}", "", partial(_with_body, path=("completions", 0, "text"), value=text))
    for label in ("m", "m" * 64, "\u00e9" * 32):
        yield Case(f"label of {len(label)}", "", partial(_with_body, path=("model",), value=label))
    yield Case("cut off", "", partial(_with_body, path=("completions", 0, "finish"), value="length"))
    for present in product((True, False), repeat=3):
        yield Case(f"bodies {present}", "", partial(_with_some_bodies, present=present), 3)
    for flips in range(2 ** min(completions, 7)):
        yield Case(f"claims {flips:07b}", "", partial(_claiming, flips=flips))


def _with_some_bodies(draft: Draft, present: Sequence[bool]) -> bytes:
    bodies = tuple(part.body if there else None for part, there in zip(draft.parts, present, strict=True))
    return encode_message(draft.envelope, bodies)


def _claiming(draft: Draft, flips: int) -> bytes:
    """The truth, told of texts that earn just this."""
    kit, key, epoch, counter = draft.kit, draft.key, draft.header["epoch"], draft.header["counter"]
    rewards = [bool(flips >> place & 1) for place in range(kit.manifest.completions)]
    tasks = [kit.task(key, epoch, counter, k) for k in range(2)]
    return kit.message(key, epoch, counter, [kit.group(task, kit.answers(task, rewards), rewards) for task in tasks])


def _spoilt(fields: Mapping[Path, type | None]) -> Iterator[tuple[Path, str, Any]]:
    for path, fitting in fields.items():
        name = ".".join(map(str, path))
        if path not in (("x",), ("model",)) and not isinstance(path[-1], int):
            yield path, f"{name} missing", _MISSING
        for value in _WRONG:
            if fitting is None or not isinstance(value, fitting):
                yield path, f"{name} is {value!r}", value


def _put(tree: Any, path: Path, value: Any) -> Any:
    """A copy of a tree with another value at a path, or none."""
    changed = place = deepcopy(tree)
    for step in path[:-1]:
        place = place[step]
    if value is _MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def _dumps(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _badly_said(draft: Draft, where: str, content: str) -> bytes:
    """Text that is no UTF-8, of as many bytes as its head says."""
    bad = bytes.fromhex(content)
    mark = _MARK * len(bad)
    if where == "header":
        payload = _dumps(_put(draft.header, ("x",), {"a": mark}))
        return draft.of_payload(payload.replace(mark.encode(), bad * 2))
    body = _dumps(_put(draft.body, ("completions", 0, "text"), mark))
    return draft.of_body(body.replace(mark.encode(), bad * 2))
