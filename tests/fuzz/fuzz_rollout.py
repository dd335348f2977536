"""Messages, headers and bodies: raw bytes, and messages signed with a fixed key and wrong in a few choices."""

import hashlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from harness import KEYS, MANIFEST, Source, cbor_head, cbor_item, refusal_is_short

from sapo_protocol import (
    GroupHeader,
    Header,
    RemoteError,
    Rollout,
    decode_body,
    decode_header,
    decode_message,
    encode_body,
    encode_header,
    encode_message,
    open_message,
)
from sapo_protocol.cbor import decode, encode
from sapo_protocol.limits import MAX_ENVELOPE_BYTES, MAX_EXTENSION_BYTES, MAX_GROUPS

T = TypeVar("T")

KEY = KEYS[0]
G = MANIFEST.completions


def fuzz(data: bytes) -> None:
    source = Source(data)
    (raw_message, raw_header, raw_body, signed_message)[source.below(4)](source)


def raw_message(source: Source) -> None:
    check_message(source.rest())


def raw_header(source: Source) -> None:
    check_header(source.rest())


def raw_body(source: Source) -> None:
    check_body(source.rest())


def signed_message(source: Source) -> None:
    bodies = [body(source) for _ in range(source.below(4))]
    payload = header(source, bodies)
    sent = tuple(None if source.below(8) == 1 else source.string() if source.below(8) == 1 else each for each in bodies)
    if source.below(16) == 1:
        sent = sent[1:] or (None,)
    message = encode_message(KEY.seal(payload), sent)
    check_header(payload)
    for each in bodies:
        check_body(each)
    rollout = check_message(message)
    if rollout:
        assert rollout.opened.payload == payload
        assert rollout.bodies == tuple(each or None for each in sent)


def accepted(read: Callable[[], T]) -> T | None:
    try:
        with refusal_is_short():
            return read()
    except RemoteError:
        return None


def check_message(data: bytes) -> Rollout | None:
    """A message is read as the general decoder reads it, if it has the one form; what opens has the bodies it names."""
    match general(data, MANIFEST.max_message_bytes):
        case [bytes(envelope), [*bodies]] if len(bodies) <= MAX_GROUPS and all(isinstance(e, bytes) for e in bodies):
            expected = envelope, tuple(each or None for each in bodies)
            assert encode_message(*expected) == data
        case _:
            expected = None
    assert accepted(lambda: decode_message(data, MANIFEST)) == expected
    rollout = accepted(lambda: open_message(data, MANIFEST))
    if rollout:
        assert expected == (rollout.opened.envelope, rollout.bodies)
        assert decode_header(rollout.opened.payload, MANIFEST) == rollout.header
        for group, each in zip(rollout.header.groups, rollout.bodies, strict=True):
            assert each is None or hashlib.sha256(each).digest() == group.body
    return rollout


def check_header(payload: bytes) -> None:
    """A header is read as the general decoder reads it, if it has the one form."""
    match general(payload, MAX_ENVELOPE_BYTES):
        case {"epoch": epoch, "groups": [_, *_] as groups, "counter": counter, **rest} if (
            type(epoch) is type(counter) is int
            and counter < MANIFEST.max_rounds
            and len(groups) <= MAX_GROUPS
            and all(map(is_group, groups))
            and is_extension(rest)
        ):
            expected = Header(
                epoch,
                counter,
                tuple(GroupHeader(each["digest"], tuple(each["claims"]), each["body"]) for each in groups),
            )
        case _:
            expected = None
    assert accepted(lambda: decode_header(payload, MANIFEST)) == expected
    if expected and not payload.startswith(b"\xa4"):
        assert encode_header(expected) == payload


def general(data: bytes, limit: int) -> object:
    try:
        return decode(data, limit=limit)
    except RemoteError:
        return None


def is_group(value: object) -> bool:
    match value:
        case {"body": bytes(digest), "claims": bytes(levels), "digest": bytes(other), **rest}:
            return len(digest) == len(other) == 32 and len(levels) == G and not rest
    return False


def is_extension(rest: dict[str, object]) -> bool:
    """Nothing, or the bounded map `x`."""
    x = rest.get("x", {})
    return rest.keys() <= {"x"} and isinstance(x, dict) and len(encode(x)) <= MAX_EXTENSION_BYTES


def check_body(data: bytes) -> None:
    """What decodes encodes to the same bytes, but for `x` and for a label that is empty."""
    decoded = accepted(lambda: decode_body(data, MANIFEST))
    if decoded:
        assert len(decoded.completions) == G
        for each in decoded.completions:
            assert 1 <= len(each.turns) <= MANIFEST.max_turns
            assert len(each.text.encode()) <= MANIFEST.max_completion_bytes
        said = dict(decode(data, limit=len(data)))
        assert is_extension({"x": said.pop("x", {})})
        if said.get("model") == "":
            del said["model"]
        assert encode_body(decoded) == encode(said)


def body(source: Source) -> bytes:
    """{completions: [{turns, finish}], model?, x?}, of which a choice replaces one part."""
    broken = source.below(16)
    if broken == 1:
        return cbor_item(source)
    completions = [
        [
            (encode("turns"), cbor_item(source) if broken == 2 else turns(source)),
            (encode("finish"), cbor_item(source) if broken == 3 else encode(("stop", "length")[source.below(2)])),
        ]
        for _ in range(source.below(17) if broken == 4 else G)
    ]
    array = cbor_head(source, 4, len(completions)) + b"".join(table(source, each) for each in completions)
    entries = [(encode("completions"), array)]
    if broken == 5:
        entries.insert(0, (encode("model"), text(source)))
    if broken == 6:
        entries.insert(0, (encode("x"), cbor_item(source)))
    if broken == 7:
        entries.insert(source.below(2), (cbor_item(source), cbor_item(source)))
    return table(source, entries)


def header(source: Source, bodies: list[bytes]) -> bytes:
    """{epoch, groups: [{body, claims, digest}], counter, x?}, of which a choice replaces one part."""
    broken = source.below(16)
    groups = [
        [
            (encode("body"), cbor_item(source) if broken == 1 else encode(hashlib.sha256(each).digest())),
            (encode("claims"), cbor_item(source) if broken == 2 else claims(source)),
            (encode("digest"), cbor_item(source) if broken == 3 else encode(bytes(32))),
        ]
        for each in bodies
    ]
    array = cbor_head(source, 4, len(groups)) + b"".join(table(source, each) for each in groups)
    entries = [
        (encode("epoch"), cbor_item(source) if broken == 4 else cbor_head(source, 0, source.number(2))),
        (encode("groups"), cbor_item(source) if broken == 5 else array),
        (encode("counter"), cbor_item(source) if broken == 6 else cbor_head(source, 0, source.number(1))),
    ]
    if broken == 7:
        entries.insert(0, (encode("x"), cbor_item(source)))
    if broken == 8:
        entries.insert(0, (encode("x"), table(source, [(encode("key"), cbor_item(source))])))
    if broken == 9:
        entries.insert(source.below(4), (cbor_item(source), cbor_item(source)))
    return table(source, entries)


def table(source: Source, entries: list[tuple[bytes, bytes]]) -> bytes:
    """A map of these entries, of which a choice leaves out, doubles or swaps some."""
    change = source.below(32)
    if change == 1 and entries:
        entries = entries[1:]
    elif change == 2:
        entries = entries + entries[:1]
    elif change == 3:
        entries = entries[::-1]
    return cbor_head(source, 5, len(entries)) + b"".join(key + value for key, value in entries)


def text(source: Source) -> bytes:
    content = source.string() * (source.number(2) % 4096 if source.below(32) == 1 else 1)
    return cbor_head(source, 3, len(content)) + content


def turns(source: Source) -> bytes:
    """Mostly one, at times as many as no task has."""
    count = source.below(6) if source.below(4) == 1 else 1
    return cbor_head(source, 4, count) + b"".join(text(source) for _ in range(count))


def claims(source: Source) -> bytes:
    return cbor_head(source, 2, G) + source.take(G).ljust(G, b"\0")


GROUP = {"body": bytes(32), "claims": bytes(G), "digest": bytes(32)}
HEADER = {"epoch": 1, "groups": [GROUP], "counter": 1}
HEADERS = (
    *({"epoch": value} for value in (0, 23, 24, 255, 256, 65_535, 65_536, 2**32, 2**64 - 1, True, "1", b"1")),
    *({"counter": value} for value in (MANIFEST.max_rounds - 1, MANIFEST.max_rounds, 2**32, False)),
    *({"groups": value} for value in ([], [GROUP] * 15, [GROUP] * 16, [GROUP] * 17, {}, [1])),
    *(
        {"groups": [{**GROUP, "claims": value}]}
        for value in (b"\1" * (G - 1), b"\1" * (G + 1), [1] * G, "1" * G, b"\xff" * G)
    ),
    *({"groups": [{**GROUP, key: bytes(size)}]} for key in ("body", "digest") for size in (31, 33)),
    {"groups": [{**GROUP, "x": {}}]},
    *({"x": value} for value in ({}, {"a": 1}, [], 0, True, "x", b"x", {"a": "b" * 251}, {"a": "b" * 252})),
    {"x": {"a": [[[[[[1]]]]]]}},
    {"x": {"a": [[[[[[[1]]]]]]]}},
    {"y": 1},
)
COMPLETION = {"finish": "stop", "turns": ["text"]}
BODIES = (
    *({"model": value} for value in ("", "m", "m" * 64, "m" * 65, b"m", 1)),
    *({"x": value} for value in ({}, {"a": 1}, [], 0, {"a": "b" * 251}, {"a": "b" * 252})),
    *({"completions": value} for value in ([], [COMPLETION] * (G - 1), [COMPLETION] * (G + 1), {}, "text", [1] * G)),
    *({"completions": [{**COMPLETION, "finish": value}] * G} for value in ("length", "", "STOP", 1, True, b"stop")),
    *({"completions": [{**COMPLETION, "turns": value}] * G} for value in ("", ["a"] * 3, ["a"] * 4, [b"a"], 1, [])),
    *({"completions": [{**COMPLETION, "turns": ["a" * n] * 2}] * G} for n in (512, 513)),
    {"completions": [{**COMPLETION, "x": {}}] * G},
    {"y": 1},
)


def seeds() -> Iterator[bytes]:
    # With no byte after the head of a program, every choice is 0: a round without a fault.
    for groups in range(4):
        yield bytes([3, groups])
    built = [body(Source(bytes([broken, 1, 2, 3]))) for broken in (0, 0, 4, 5, 6)]
    for each in built:
        yield b"\2" + each
    for broken in (0, 7, 8):
        payload = header(Source(bytes([broken])), built[:2])
        yield b"\1" + payload
        yield b"\0" + encode_message(KEY.seal(payload), tuple(built[:2]))
    for bodies in ((None, built[1]), (built[1], built[1]), (built[2], None), (None,), (None, None, None), ()):
        yield b"\0" + encode_message(KEY.seal(payload), bodies)
    message = encode_message(KEY.seal(payload), (None, None))
    for changed in (message + b"\0", message[:-1], message[:-3], message[:-3] + b"\x81\x40", message[:-1] + b"\xf4"):
        yield b"\0" + changed
    for change in HEADERS:
        yield b"\1" + encode({**HEADER, **change})
    valid = encode(HEADER)
    for place, other in ((0, 0xA4), (-1, 0xFF), (valid.index(b"groups") + 6, 0x82), (-2, 0xF4)):
        yield b"\1" + valid[:place] + bytes([other]) + (valid[place + 1 :] if place != -1 else b"")
    for change in BODIES:
        yield b"\2" + encode({"completions": [COMPLETION] * G, **change})
    for broken in range(16):
        yield bytes([3, 1, 0]) + bytes(4 * G) + bytes([broken, 9, 9, 9])
        yield bytes([3, 1, broken, 9, 9, 9, 9, 9])
