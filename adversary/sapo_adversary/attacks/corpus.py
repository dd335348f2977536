"""Messages that are wrong in exactly one place, with the reason to refuse each, and unusual messages that are valid."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random
from typing import Any

import cbor2

from sapo_adversary.attacks.drafts import (
    MISSING,
    Draft,
    Path,
    badly_said,
    beginning,
    body_cut,
    body_said,
    claiming,
    dumps,
    header_cut,
    header_said,
    message_cut,
    message_said,
    reshaped,
    with_body,
    with_byte,
    with_header,
    with_some_bodies,
)
from sapo_adversary.attacks.forms import FORMS
from sapo_protocol import encode_message

_WRONG: Sequence[Any] = ("text", b"bytes", -1, 1.5, None, True, [], {}, 2**64, cbor2.CBORTag(1, 0), cbor2.undefined)
"""One value of each type: nearly every field refuses most of them."""
_NOT_UTF8 = ("80", "c080", "e282", "eda080", "f4908080", "fffe")
"""A lone continuation, an overlong zero, half a character, a surrogate, one past the last, and a mark of byte order."""

HEADER_FIELDS: Mapping[Path, type | None] = {
    ("epoch",): None,
    ("counter",): None,
    ("groups",): None,
    ("groups", 0): None,
    ("groups", 0, "body"): None,
    ("groups", 0, "claims"): None,
    ("groups", 0, "digest"): None,
    ("x",): dict,
}
"""Fields of a header, and the type of `_WRONG` that the field accepts."""
BODY_FIELDS: Mapping[Path, type | None] = {
    ("completions",): None,
    ("completions", 0): None,
    ("completions", 0, "turns"): None,
    ("completions", 0, "turns", 0): str,
    ("completions", 0, "finish"): None,
    ("model",): str,
    ("x",): dict,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One message of the corpus."""

    name: str
    refused: str
    """The reason for which a node must refuse it; empty where a node must accept it."""
    make: Callable[[Draft], bytes]
    groups: int = 2


def corpus(completions: int, longest: int) -> list[Case]:
    """All cases for a swarm with this number of completions in a group and bytes in a completion. A node must refuse
    seven in ten.
    """
    broken = [*_frames(), *_envelopes(), *_headers(completions), *_bodies(longest)]
    valid = [*_unusual(completions, longest)]
    return broken + valid[: len(broken) * 3 // 7]


def _frames() -> Iterator[Case]:
    rng = Random("frames")  # noqa: S311 - a corpus
    for cut in sorted(rng.sample(range(1, 999), 30)):
        yield Case(f"message cut at {cut / 10} %", "frame", partial(message_cut, permille=cut))
    for first in (0x00, 0x40, 0x60, 0x80, 0x81, 0x83, 0x98, 0x9F, 0xA1, 0xD2, 0xF6, 0xFF):
        yield Case(f"message that begins with {first:02x}", "frame", partial(beginning, first=first))
    for kind in (0x19, 0x39, 0x79, 0x99, 0xB9, 0xD9, 0xF9, 0x5A, 0x5B, 0x5F):
        yield Case(f"envelope of type {kind:02x}", "frame", partial(beginning, first=0x82, second=kind))
    yield Case("empty message", "frame", lambda _: b"")
    yield Case("bytes after the end", "frame", lambda d: d.message + b"\0")
    yield Case("the message twice", "frame", lambda d: d.message * 2)
    yield Case("one body as text", "frame", lambda d: cbor2.dumps([d.envelope, ["", d.parts[1].body]]))
    yield Case("bodies as a map", "frame", lambda d: cbor2.dumps([d.envelope, {"0": d.parts[0].body}]))
    yield Case("no bodies", "frame", lambda d: cbor2.dumps([d.envelope]))
    yield Case("a third element", "frame", lambda d: cbor2.dumps([d.envelope, [p.body for p in d.parts], 0]))
    for name, form in FORMS.items():
        if name not in ("long integers", "other key order", "repeated keys"):
            yield Case(f"message with {name}", "frame", partial(message_said, form=form))
    yield Case("one body too few", "body", lambda d: encode_message(d.envelope, (d.parts[0].body,)))
    yield Case("one body too many", "body", lambda d: encode_message(d.envelope, (None, None, None)))
    yield Case("bodies exchanged", "body", lambda d: encode_message(d.envelope, (d.parts[1].body, d.parts[0].body)))
    yield Case("a body with a bit flipped", "body", lambda d: d.message[:-1] + bytes([d.message[-1] ^ 1]))
    yield Case("more than a message may have", "size", lambda d: d.around(d.envelope) + bytes(1_000_000))


def _envelopes() -> Iterator[Case]:
    for place in (*range(10), 42):
        yield Case(f"template byte {place} changed", "envelope", partial(with_byte, place=place))
    for place in (10, 20, 41):
        yield Case(f"byte {place} of the key changed", "signature", partial(with_byte, place=place))
    for place in (60, 100, -64, -33, -32, -1):
        yield Case(f"byte {place} of what is signed or signs changed", "signature", partial(with_byte, place=place))
    yield Case("something in the unprotected header", "envelope", partial(reshaped, unprotected={1: -19}))
    yield Case("alg EdDSA", "envelope", partial(reshaped, protected={1: -8}))
    yield Case("alg ES256", "envelope", partial(reshaped, protected={1: -7}))
    yield Case("a critical label", "envelope", partial(reshaped, protected={2: [1]}))
    yield Case("a key of 31 bytes", "envelope", partial(reshaped, protected={4: bytes(31)}))
    yield Case("a payload as text", "envelope", partial(reshaped, payload="text"))
    yield Case("no payload", "envelope", partial(reshaped, payload=None))
    yield Case("a signature of 63 bytes", "envelope", lambda d: d.around(d.envelope[:-1]))
    yield Case("a signature of 65 bytes", "envelope", lambda d: d.around(d.envelope + b"\0"))
    yield Case("an envelope of zeros", "envelope", lambda d: d.around(bytes(200)))
    yield Case("an envelope without its tag", "envelope", lambda d: d.around(d.envelope[1:]))
    yield Case("more than an envelope may have", "size", lambda d: d.of_payload(d.payload + bytes(2_000)))


def _headers(completions: int) -> Iterator[Case]:
    reason = "header"
    for path, name, value in _spoilt(HEADER_FIELDS):
        yield Case(f"header: {name}", reason, partial(with_header, path=path, value=value))
    more: Sequence[tuple[str, Path, Any]] = (
        ("seventeen groups", ("groups",), [{"body": b"", "claims": b"", "digest": b""}] * 17),
        ("a key too many", ("y",), 0),
        ("a key too many in a group", ("groups", 0, "y"), 0),
        ("a claim too few", ("groups", 0, "claims"), bytes(completions - 1)),
        ("a claim too many", ("groups", 0, "claims"), bytes(completions + 1)),
        ("claims as a list of levels", ("groups", 0, "claims"), [1] * completions),
        ("a digest of 31 bytes", ("groups", 0, "digest"), bytes(31)),
        ("a hash of 33 bytes", ("groups", 0, "body"), bytes(33)),
        ("a counter past the last", ("counter",), 2**63),
        ("x of a byte too many", ("x",), {"a": bytes(252)}),
        ("x with a number as key", ("x",), {1: 2}),
        ("x with a fraction", ("x",), {"a": 0.5}),
        ("x nested too deep", ("x",), {"a": [[[[[[[[]]]]]]]]}),
    )
    for name, path, value in more:
        yield Case(f"header: {name}", reason, partial(with_header, path=path, value=value))
    for content in _NOT_UTF8:
        yield Case(f"header: {content} in x", reason, partial(badly_said, where="header", content=content))
    for name, form in FORMS.items():
        yield Case(f"header with {name}", reason, partial(header_said, form=form))
    for cut in (0, 1, 5, 50, 90, 99):
        yield Case(f"header cut at {cut} %", reason, partial(header_cut, percent=cut))
    yield Case("bytes after the header", reason, lambda d: d.of_payload(d.payload + b"\0"))
    for epoch in (0, 2**40, 2**64 - 1):
        yield Case(
            f"epoch {epoch}",
            "outside the epoch window",
            partial(with_header, path=("epoch",), value=epoch),
        )


def _bodies(longest: int) -> Iterator[Case]:
    """Each case in a round of one group, so that no other group of the round is valid."""
    for case in _bad_bodies(longest):
        yield replace(case, groups=1)


def _bad_bodies(longest: int) -> Iterator[Case]:
    reason = "malformed body"
    for path, name, value in _spoilt(BODY_FIELDS):
        yield Case(f"body: {name}", reason, partial(with_body, path=path, value=value))
    more: Sequence[tuple[str, Path, Any]] = (
        ("a key too many", ("y",), 0),
        ("a key too many in a completion", ("completions", 0, "y"), 0),
        ("a label too long", ("model",), "m" * 65),
        ("a completion too long", ("completions", 0, "turns", 0), "t" * (longest + 1)),
        ("a turn too many", ("completions", 0, "turns"), ["so", "on"]),
        ("x of a byte too many", ("x",), {"a": bytes(252)}),
    )
    for name, path, value in more:
        yield Case(f"body: {name}", reason, partial(with_body, path=path, value=value))
    yield Case(
        "body: a completion too few", reason, lambda d: d.of_body(dumps({"completions": d.body["completions"][1:]}))
    )
    yield Case(
        "body: a completion too many", reason, lambda d: d.of_body(dumps({"completions": d.body["completions"] * 2}))
    )
    for content in _NOT_UTF8:
        yield Case(f"body: {content} in a text", reason, partial(badly_said, where="body", content=content))
    for name, form in FORMS.items():
        if name != "long integers":
            yield Case(f"body with {name}", reason, partial(body_said, form=form))
    for cut in (1, 5, 50, 90, 99):
        yield Case(f"body cut at {cut} %", reason, partial(body_cut, percent=cut))
    yield Case("bytes after the body", reason, lambda d: d.of_body(d.parts[0].body + b"\0"))


def _unusual(completions: int, longest: int) -> Iterator[Case]:
    """The messages that a node must accept."""
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
        yield Case(f"header with x {number}", "", partial(with_header, path=("x",), value=x))
        yield Case(f"body with x {number}", "", partial(with_body, path=("x",), value=x))
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
        yield Case(f"text {number}", "", partial(with_body, path=("completions", 0, "turns", 0), value=text))
    for label in ("m", "m" * 64, "\u00e9" * 32):
        yield Case(f"label of {len(label)}", "", partial(with_body, path=("model",), value=label))
    yield Case("cut off", "", partial(with_body, path=("completions", 0, "finish"), value="length"))
    for present in product((True, False), repeat=3):
        yield Case(f"bodies {present}", "", partial(with_some_bodies, present=present), 3)
    for flips in range(2 ** min(completions, 7)):
        yield Case(f"claims {flips:07b}", "", partial(claiming, flips=flips))


def _spoilt(fields: Mapping[Path, type | None]) -> Iterator[tuple[Path, str, Any]]:
    for path, fitting in fields.items():
        name = ".".join(map(str, path))
        if path not in (("x",), ("model",)) and not isinstance(path[-1], int):
            yield path, f"{name} missing", MISSING
        for value in _WRONG:
            if fitting is None or not isinstance(value, fitting):
                yield path, f"{name} is {value!r}", value
