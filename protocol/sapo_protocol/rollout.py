"""A round on the wire: a small signed header, and beside it one body of plain text for each group.

The header commits to question and answer (digest), to the claimed rewards and to the text (SHA-256 of the body) of
every group of the round. A message may leave bodies out; it can never carry one that the header does not name.
"""

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from . import limits
from .cbor import Value, decode, encode
from .envelope import Opened, open_envelope, parse_envelope
from .errors import Layer, RemoteError
from .manifest import Manifest

DIGEST_BYTES = 32


class Finish(StrEnum):
    """Why a completion ends: the model stopped by itself, or it ran into a limit."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Completion:
    """One decoded answer."""

    text: str
    finish: Finish


@dataclass(frozen=True, slots=True)
class Body:
    """The G completions of one group."""

    completions: tuple[Completion, ...]
    model: str = ""
    """A free label by which the sender names its model; nothing depends on it."""


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """What the header says of one group."""

    digest: bytes
    """SHA-256 of the deterministic CBOR of [question, answer]."""
    claims: tuple[bool, ...]
    """The reward that the sender says each completion earns. It orders a verifier's work and never sets a reward."""
    body: bytes
    """SHA-256 of the encoded body."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the issuer signs for one round."""

    epoch: int
    counter: int
    groups: tuple[GroupHeader, ...]
    """All tasks k = 0 .. n-1 of the round, in order."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A signed round, decoded and field-checked, with the bodies that came along. Made only by `decode_rollout`."""

    opened: Opened
    header: Header
    bodies: tuple[bytes | None, ...]
    """The encoded body of each group, matching its hash; None where it was left out."""


def encode_body(body: Body) -> bytes:
    """The bytes whose SHA-256 the header names."""
    completions: list[Value] = [{"finish": each.finish.value, "text": each.text} for each in body.completions]
    value: dict[str, Value] = {"completions": completions}
    if body.model:
        value["model"] = body.model
    return encode(value)


def decode_body(data: bytes, manifest: Manifest) -> Body:
    """The body that `data` encodes. Raises RemoteError (body); its issuer signed its hash and is to blame."""
    table = _table(
        decode(data, limit=manifest.max_message_bytes, layer=Layer.BODY),
        Layer.BODY,
        {"completions"},
        {"model"},
    )
    entries = table["completions"]
    if not isinstance(entries, list) or len(entries) != manifest.completions:
        raise RemoteError(Layer.BODY, f"a group has exactly {manifest.completions} completions in this swarm")
    model = table.get("model", "")
    if not isinstance(model, str) or len(model.encode()) > limits.MAX_MODEL_LABEL_BYTES:
        raise RemoteError(Layer.BODY, "a model label that is no short text")
    return Body(tuple(_completion(entry, manifest) for entry in entries), model)


def _completion(value: Value, manifest: Manifest) -> Completion:
    table = _table(value, Layer.BODY, {"finish", "text"})
    text, finish = table["text"], table["finish"]
    if not isinstance(text, str) or len(text.encode()) > manifest.max_completion_bytes:
        raise RemoteError(Layer.BODY, f"a completion is text of at most {manifest.max_completion_bytes} bytes")
    if finish not in tuple(Finish):
        raise RemoteError(Layer.BODY, "finish is neither stop nor length")
    return Completion(text, Finish(finish))


def encode_header(header: Header) -> bytes:
    """The payload that is signed."""
    groups: list[Value] = [
        {"body": group.body, "claims": list(group.claims), "digest": group.digest} for group in header.groups
    ]
    return encode({"counter": header.counter, "epoch": header.epoch, "groups": groups})


def decode_header(payload: bytes, manifest: Manifest) -> Header:
    """The header that a signed payload holds. Raises RemoteError (header)."""
    value = decode(payload, limit=limits.MAX_ENVELOPE_BYTES, layer=Layer.HEADER)
    table = _table(value, Layer.HEADER, {"counter", "epoch", "groups"})
    epoch, counter, groups = _uint(table["epoch"]), _uint(table["counter"]), table["groups"]
    if counter >= manifest.max_rounds:
        raise RemoteError(Layer.HEADER, f"counter {counter}, this swarm allows {manifest.max_rounds} rounds per epoch")
    if not isinstance(groups, list) or not 1 <= len(groups) <= limits.MAX_GROUPS:
        raise RemoteError(Layer.HEADER, f"a header lists 1 to {limits.MAX_GROUPS} groups")
    return Header(epoch, counter, tuple(_group(group, manifest) for group in groups))


def _group(value: Value, manifest: Manifest) -> GroupHeader:
    table = _table(value, Layer.HEADER, {"body", "claims", "digest"}, extension=False)
    body, claims, digest = table["body"], table["claims"], table["digest"]
    for each in (body, digest):
        if not isinstance(each, bytes) or len(each) != DIGEST_BYTES:
            raise RemoteError(Layer.HEADER, f"a digest has {DIGEST_BYTES} bytes")
    if not isinstance(claims, list) or len(claims) != manifest.completions:
        raise RemoteError(Layer.HEADER, f"a group claims one reward for each of its {manifest.completions} completions")
    if not all(isinstance(claim, bool) for claim in claims):
        raise RemoteError(Layer.HEADER, "a claim is true or false")
    return GroupHeader(cast("bytes", digest), tuple(cast("list[bool]", claims)), cast("bytes", body))


def _table(
    value: Value,
    layer: Layer,
    required: AbstractSet[str],
    optional: AbstractSet[str] = frozenset(),
    *,
    extension: bool = True,
) -> Mapping[str, Value]:
    """A map with exactly the keys of this version; what a later minor version adds lives in the bounded map `x`."""
    if not isinstance(value, dict):
        raise RemoteError(layer, "a map was expected")
    allowed = required | optional | ({"x"} if extension else set())
    if not required <= value.keys() <= allowed:
        raise RemoteError(layer, f"keys {sorted(value)} where {sorted(required)} are needed")
    if "x" in value and (not isinstance(value["x"], dict) or len(encode(value["x"])) > limits.MAX_EXTENSION_BYTES):
        raise RemoteError(layer, f"x is a map of at most {limits.MAX_EXTENSION_BYTES} bytes")
    return value


def _uint(value: Value) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RemoteError(Layer.HEADER, "epoch and counter are unsigned integers")
    return value


def encode_message(envelope: bytes, bodies: tuple[bytes | None, ...]) -> bytes:
    """One gossip message: [envelope, [body, ...]]; a body left out is an empty byte string."""
    return encode([envelope, [body or b"" for body in bodies]])


def decode_message(data: bytes, manifest: Manifest) -> tuple[bytes, tuple[bytes | None, ...]]:
    """Envelope and bodies of a message, unverified. Raises RemoteError (size, encoding, frame)."""
    value = decode(data, limit=manifest.max_message_bytes)
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not isinstance(value[0], bytes)
        or not isinstance(value[1], list)
    ):
        raise RemoteError(Layer.FRAME, "a message is [envelope, [body, ...]]")
    envelope, bodies = value
    if len(bodies) > limits.MAX_GROUPS or not all(isinstance(body, bytes) for body in bodies):
        raise RemoteError(Layer.FRAME, f"bodies are at most {limits.MAX_GROUPS} byte strings")
    return envelope, tuple(cast("bytes", body) or None for body in bodies)


def decode_rollout(opened: Opened, bodies: tuple[bytes | None, ...], manifest: Manifest) -> Rollout:
    """Decode the signed header and match the bodies to it. Raises RemoteError (header, body).

    A wrong body is the sender's doing: whoever relays can swap it, the issuer signed another.
    """
    header = decode_header(opened.payload, manifest)
    if len(bodies) != len(header.groups):
        raise RemoteError(Layer.BODY, f"{len(bodies)} bodies beside a header of {len(header.groups)} groups")
    for group, body in zip(header.groups, bodies, strict=True):
        if body is not None and hashlib.sha256(body).digest() != group.body:
            raise RemoteError(Layer.BODY, "a body that the header does not name")
    return Rollout(opened, header, bodies)


def open_message(data: bytes, manifest: Manifest) -> Rollout:
    """All steps from the bytes of a message to its rollout, for who need not stop between them.

    Raises RemoteError of the first layer that refuses.
    """
    envelope, bodies = decode_message(data, manifest)
    opened = open_envelope(parse_envelope(envelope, network_id=manifest.network_id))
    return decode_rollout(opened, bodies, manifest)
