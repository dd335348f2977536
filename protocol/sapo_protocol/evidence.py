"""Equivocation: the one offence that anybody can check from bytes alone.

An issuer that signs two different headers under one (epoch, counter) has lied to somebody. The two envelopes are the
proof; nothing else about a peer is provable to a third party in version 1.0.
"""

from dataclasses import dataclass

from .envelope import Opened, open_envelope, parse_envelope
from .errors import Layer, RemoteError
from .manifest import Manifest
from .rollout import decode_header


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two valid envelopes of one issuer for one (epoch, counter). Made only by `prove_equivocation`."""

    issuer: bytes
    epoch: int
    counter: int
    envelopes: tuple[bytes, bytes]


def prove_equivocation(first: bytes, second: bytes, manifest: Manifest) -> Equivocation:
    """Check two envelopes as evidence. Raises RemoteError when either is invalid or they do not contradict."""
    opened = tuple(_open(envelope, manifest) for envelope in (first, second))
    headers = tuple(decode_header(each.payload, manifest) for each in opened)
    if opened[0].issuer != opened[1].issuer:
        raise RemoteError(Layer.ENVELOPE, "two issuers are no equivocation")
    if (headers[0].epoch, headers[0].counter) != (headers[1].epoch, headers[1].counter):
        raise RemoteError(Layer.HEADER, "two rounds are no equivocation")
    if opened[0].envelope_id == opened[1].envelope_id:
        raise RemoteError(Layer.HEADER, "the same content twice is no equivocation")
    return Equivocation(opened[0].issuer, headers[0].epoch, headers[0].counter, (first, second))


def _open(envelope: bytes, manifest: Manifest) -> Opened:
    return open_envelope(parse_envelope(envelope, network_id=manifest.network_id))
