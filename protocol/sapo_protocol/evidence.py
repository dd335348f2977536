"""Equivocation (spec: evidence): an issuer signed two contents for one (epoch, counter).

The two envelopes prove it from bytes alone. Version 1.0 has no other proof that a third party can check.
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
    """A parsed evidence message: two envelopes that name `issuer`. Nothing in it is verified yet."""

    issuer: bytes
    envelopes: tuple[Sealed, Sealed]


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two valid envelopes of one issuer for one (epoch, counter). Made only by `prove_equivocation`."""

    issuer: bytes
    epoch: int
    counter: int
    evidence: bytes
    """The evidence message, encoded."""


def encode_evidence(one: Sealed, other: Sealed) -> bytes:
    """The evidence message of two envelopes: the one with the smaller id first."""
    first, second = sorted((one, other), key=lambda sealed: sealed.envelope_id)
    return encode([first.envelope, second.envelope])


def decode_evidence(data: bytes, manifest: Manifest) -> Evidence:
    """The parsed evidence message, unverified. Raises RemoteError (size, frame, envelope, evidence)."""
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
        raise RemoteError(Layer.EVIDENCE, "the envelopes have two issuers, which is no equivocation")
    if first.envelope_id >= second.envelope_id:  # EVD-4
        raise RemoteError(Layer.EVIDENCE, "the ids of the two envelopes do not ascend")
    return Evidence(first.issuer, (first, second))


def prove_equivocation(evidence: Evidence, manifest: Manifest) -> Equivocation:
    """Verify evidence. Raises RemoteError (signature, header, evidence): charge the sender, not the issuer."""
    opened = [open_envelope(sealed) for sealed in evidence.envelopes]
    first, second = (decode_header(each.payload, manifest) for each in opened)
    if (first.epoch, first.counter) != (second.epoch, second.counter):  # EVD-3
        raise RemoteError(Layer.EVIDENCE, "the envelopes are of two rounds, which is no equivocation")
    return Equivocation(evidence.issuer, first.epoch, first.counter, encode_evidence(*evidence.envelopes))
