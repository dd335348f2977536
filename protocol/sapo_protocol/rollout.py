"""A round on the wire (spec: rollout): a signed envelope, and one body of plain text for each group.

The header in the envelope commits, for every group, to prompt and answer (digest), to the claimed levels and to the
texts (SHA-256 of the body). A message may leave bodies out. Every body in it must match the header.
"""

import hashlib
from dataclasses import dataclass

from . import limits
from .cbor import encode, read_byte_string
from .envelope import Opened, open_envelope, parse_envelope
from .errors import Layer, RemoteError
from .header import Header, decode_header
from .manifest import Manifest


@dataclass(frozen=True, slots=True)
class Rollout:
    """A signed round, decoded and field-checked, with the bodies of its message. Made only by `match_bodies`."""

    opened: Opened
    header: Header
    bodies: tuple[bytes | None, ...]
    """The encoded body of each group, which matches its hash; None if it was left out."""


def encode_message(envelope: bytes, bodies: tuple[bytes | None, ...]) -> bytes:
    """One gossip message: [envelope, [body, ...]]. An empty byte string stands for a body left out."""
    return encode([envelope, [body or b"" for body in bodies]])


def decode_message(data: bytes, manifest: Manifest) -> tuple[bytes, tuple[bytes | None, ...]]:
    """Envelope and bodies of a message, unverified. Raises RemoteError (size, frame)."""
    if len(data) > manifest.max_message_bytes:  # MSG-1
        raise RemoteError(Layer.SIZE, f"{len(data)} bytes, the limit is {manifest.max_message_bytes}")
    if not data.startswith(b"\x82"):  # MSG-2
        raise RemoteError(Layer.FRAME, "a message is [envelope, [body, ...]]")
    envelope, position = read_byte_string(data, 1, Layer.FRAME)
    count = data[position] - 0x80 if position < len(data) else -1
    if not 0 <= count <= limits.MAX_GROUPS:
        raise RemoteError(Layer.FRAME, f"bodies are an array of at most {limits.MAX_GROUPS} byte strings")
    position += 1
    bodies = []
    for _ in range(count):
        body, position = read_byte_string(data, position, Layer.FRAME)
        bodies.append(body or None)
    if position != len(data):
        raise RemoteError(Layer.FRAME, "bytes after the end")
    return envelope, tuple(bodies)


def match_bodies(opened: Opened, header: Header, bodies: tuple[bytes | None, ...]) -> Rollout:
    """The rollout, if the bodies match its header. Raises RemoteError (body).

    Charge the sender: a relay can replace a body, and the issuer signed the hash of another one.
    """
    if len(bodies) != len(header.groups):  # BODY-1
        raise RemoteError(Layer.BODY, f"{len(bodies)} bodies for a header of {len(header.groups)} groups")
    for group, body in zip(header.groups, bodies, strict=True):
        if body is not None and hashlib.sha256(body).digest() != group.body:
            raise RemoteError(Layer.BODY, "a body that does not match the header")
    return Rollout(opened, header, bodies)


def open_message(data: bytes, manifest: Manifest) -> Rollout:
    """All steps from the bytes of a message to its rollout. Raises RemoteError of the first layer that refuses."""
    envelope, bodies = decode_message(data, manifest)
    opened = open_envelope(parse_envelope(envelope, network_id=manifest.network_id))
    return match_bodies(opened, decode_header(opened.payload, manifest), bodies)
