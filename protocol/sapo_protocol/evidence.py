"""Equivocation (spec: evidence): the one offence that anybody can check from bytes alone.

An issuer that signs two contents for one (epoch, counter) has lied to somebody. The two envelopes are the proof;
nothing else about a peer is provable to a third party in version 1.0.
"""

from dataclasses import dataclass

from .cbor import encode, read_byte_string
from .envelope import Sealed, open_envelope, parse_envelope
from .errors import Layer, RemoteError
from .header import decode_header
from .limits import MAX_EVIDENCE_BYTES
from .manifest import Manifest


@dataclass(frozen=True, slots=True)
class Evidence:
    """An evidence message taken apart: what its sender says that `issuer` signed. Nothing in it is believed yet."""

    issuer: bytes
    envelopes: tuple[Sealed, Sealed]


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two valid envelopes of one issuer for one (epoch, counter). Made only by `prove_equivocation`."""

    issuer: bytes
    epoch: int
    counter: int
    evidence: bytes
    """The message that proves it to anybody."""


def encode_evidence(one: Sealed, other: Sealed) -> bytes:
    """The evidence message of two envelopes: the one with the smaller id first."""
    first, second = sorted((one, other), key=lambda sealed: sealed.envelope_id)
    return encode([first.envelope, second.envelope])


def decode_evidence(data: bytes, manifest: Manifest) -> Evidence:
    """What an evidence message says, unverified. Raises RemoteError (size, frame, envelope, evidence)."""
    if len(data) > MAX_EVIDENCE_BYTES:  # EVD-1
        raise RemoteError(Layer.SIZE, f"evidence of {len(data)} bytes, the limit is {MAX_EVIDENCE_BYTES}")
    if not data.startswith(b"\x82"):  # EVD-2
        raise RemoteError(Layer.FRAME, "evidence is [envelope, envelope]")
    one, position = read_byte_string(data, 1, Layer.FRAME)
    other, position = read_byte_string(data, position, Layer.FRAME)
    if position != len(data):
        raise RemoteError(Layer.FRAME, "bytes after the end")
    first, second = (parse_envelope(envelope, network_id=manifest.network_id) for envelope in (one, other))
    if first.issuer != second.issuer:  # EVD-3
        raise RemoteError(Layer.EVIDENCE, "two issuers are no equivocation")
    if first.envelope_id >= second.envelope_id:  # EVD-4
        raise RemoteError(Layer.EVIDENCE, "the ids of the two envelopes do not ascend")
    return Evidence(first.issuer, (first, second))


def prove_equivocation(accusation: Evidence, manifest: Manifest) -> Equivocation:
    """Check what an accusation rests on. Raises RemoteError (signature, header, evidence): its sender made it up."""
    opened = [open_envelope(sealed) for sealed in accusation.envelopes]
    first, second = (decode_header(each.payload, manifest) for each in opened)
    if (first.epoch, first.counter) != (second.epoch, second.counter):  # EVD-3
        raise RemoteError(Layer.EVIDENCE, "two rounds are no equivocation")
    return Equivocation(accusation.issuer, first.epoch, first.counter, encode_evidence(*accusation.envelopes))
