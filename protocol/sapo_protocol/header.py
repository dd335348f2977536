"""The signed header of a round (spec: rollout, HDR): epoch, counter, and what its issuer commits to for each group.

For a given G a header has one form. A regular expression matches that form and refuses every other byte, so no general
decoder reads a header.
"""

import functools
import re
from dataclasses import dataclass

from . import limits
from .cbor import Value, decode, encode, end_of_item
from .errors import Layer, RemoteError
from .manifest import Manifest


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """The header's entry for one group."""

    digest: bytes
    """SHA-256 of the deterministic CBOR of [prompt, answer]."""
    claims: tuple[int, ...]
    """The level, 0 to 255, that the issuer claims for each completion. Claims order a verifier's work and never set a
    reward."""
    body: bytes
    """SHA-256 of the encoded body."""


@dataclass(frozen=True, slots=True)
class Header:
    """The values that the issuer signs for one round."""

    epoch: int
    counter: int
    groups: tuple[GroupHeader, ...]
    """All tasks k = 0 .. n-1 of the round, in order."""


def encode_header(header: Header) -> bytes:
    """The payload that is signed."""
    groups: list[Value] = [
        {"body": group.body, "claims": bytes(group.claims), "digest": group.digest} for group in header.groups
    ]
    return encode({"counter": header.counter, "epoch": header.epoch, "groups": groups})


def decode_header(payload: bytes, manifest: Manifest) -> Header:
    """The header that a signed payload holds. Raises RemoteError (header)."""
    match = _form(manifest.completions).fullmatch(payload, _after_start(payload))
    if match is None:
        raise RemoteError(
            Layer.HEADER,
            f"not {{counter, epoch, groups: 1 to {limits.MAX_GROUPS} of {{body, claims of "
            f"{manifest.completions} bytes, digest}}, x?}} in its one encoding",
        )
    epoch, count, groups, counter = match.groups()
    found = _group_form(manifest.completions).findall(groups)
    if len(found) != count[0] - 0x80:  # HDR-3
        raise RemoteError(Layer.HEADER, f"{len(found)} groups in an array of {count[0] - 0x80}")
    number = _number(counter)
    if number >= manifest.max_rounds:  # HDR-2
        raise RemoteError(Layer.HEADER, f"counter {number}, this swarm allows {manifest.max_rounds} rounds per epoch")
    return Header(
        _number(epoch),
        number,
        tuple([GroupHeader(digest, tuple(claims), body) for body, claims, digest in found]),
    )


_THREE_KEYS, _FOUR_KEYS_AND_X = b"\xa3", b"\xa4\x61x"

# A number in its shortest form: a wider one must not begin with zeros.
_NUMBER = rb"([\x00-\x17]|\x18[\x18-\xff]|\x19(?!\x00).{2}|\x1a(?!\x00{2}).{4}|\x1b(?!\x00{4}).{8})"


def _group_pattern(completions: int) -> bytes:
    claims = re.escape(bytes([0x40 + completions])) + rb"(.{%d})" % completions
    return rb"\xa3\x64body\x58\x20(.{32})\x66claims" + claims + rb"\x66digest\x58\x20(.{32})"


@functools.cache
def _group_form(completions: int) -> re.Pattern[bytes]:
    return re.compile(_group_pattern(completions), re.DOTALL)


@functools.cache
def _form(completions: int) -> re.Pattern[bytes]:
    """The bytes after the head of the map and `x`: epoch, groups, counter."""
    groups = _group_pattern(completions).replace(b"(", b"(?:")
    return re.compile(
        rb"\x65epoch" + _NUMBER + rb"\x66groups([\x81-\x90])((?:" + groups + rb")+)\x67counter" + _NUMBER, re.DOTALL
    )


def _after_start(payload: bytes) -> int:
    """The position of the first key after the optional `x`. Raises RemoteError (header) if `x` breaks EXT-1."""
    if payload.startswith(_THREE_KEYS):
        return len(_THREE_KEYS)
    if not payload.startswith(_FOUR_KEYS_AND_X):
        raise RemoteError(Layer.HEADER, "not a map that begins with epoch or x")
    start = len(_FOUR_KEYS_AND_X)
    end = end_of_item(payload, start, Layer.HEADER, depth=limits.MAX_DEPTH - 1)
    extension = decode(payload[start:end], limit=limits.MAX_EXTENSION_BYTES, layer=Layer.HEADER)
    if not isinstance(extension, dict):
        raise RemoteError(Layer.HEADER, "x is a map")
    return end


def _number(head: bytes) -> int:
    return head[0] if len(head) == 1 else int.from_bytes(head[1:], "big")
