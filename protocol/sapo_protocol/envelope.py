"""The signed envelope (spec: envelope): a COSE_Sign1 (RFC 9052) in which only payload, key and signature vary.

    D2 84                         tag 18, array of four
       58 26 A2 01 32 04 58 20 kid   protected header {1: -19 (Ed25519, RFC 9864), 4: kid}
       A0                            unprotected header: empty
       58/59 ... payload             byte string
       58 40 signature               64 bytes

The signature covers Sig_structure = ["Signature1", protected, external_aad, payload], where external_aad is the
deterministic CBOR of [domain, network id]. The receiver supplies both and never reads them from the message. An
envelope of another swarm, kind or major version therefore fails as a bad signature.
"""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from .cbor import encode, read_byte_string
from .errors import Layer, RemoteError
from .limits import MAX_ENVELOPE_BYTES
from .signature import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, verify_signature

ROLLOUT_DOMAIN = "sapo/rollout/2"

_START = bytes.fromhex("d284")
_PROTECTED = bytes.fromhex("a201320458") + bytes([PUBLIC_KEY_BYTES])
_PROTECTED_HEAD = bytes([0x58, len(_PROTECTED) + PUBLIC_KEY_BYTES])
_UNPROTECTED = b"\xa0"
_SIGNATURE_HEAD = bytes([0x58, SIGNATURE_BYTES])
_TEMPLATE = _START + _PROTECTED_HEAD + _PROTECTED
_KEY_END = len(_TEMPLATE) + PUBLIC_KEY_BYTES


@dataclass(frozen=True, slots=True)
class Sealed:
    """A parsed envelope. Nothing in it is verified yet."""

    issuer: bytes
    """The public key (32 bytes) that the protected header names."""
    payload: bytes
    signature: bytes
    signed: bytes
    """The Sig_structure that the signature must cover."""
    envelope_id: bytes
    """SHA-256 of the Sig_structure: the same for every signature over the same content."""
    envelope: bytes
    """The bytes received."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An envelope with a valid signature: `issuer` signed `payload` for this swarm. Made only by `open_envelope`."""

    issuer: bytes
    envelope_id: bytes
    payload: bytes
    envelope: bytes


_SIG_START = b"\x84" + encode("Signature1") + _PROTECTED_HEAD + _PROTECTED


@functools.lru_cache(maxsize=64)
def _external_aad(domain: str, network_id: bytes) -> bytes:
    """The signed byte string that names kind, version and swarm."""
    return encode(encode([domain, network_id]))


def _sig_structure(issuer: bytes, payload: bytes, domain: str, network_id: bytes) -> bytes:
    """E(["Signature1", protected, external_aad, payload]), joined from its encoded parts; ENV-7."""
    return b"".join((_SIG_START, issuer, _external_aad(domain, network_id), encode(payload)))


def seal(
    payload: bytes,
    *,
    issuer: bytes,
    sign: Callable[[bytes], bytes],
    network_id: bytes,
    domain: str = ROLLOUT_DOMAIN,
) -> bytes:
    """The envelope of `payload` for one swarm, signed by `sign` with the private key of `issuer`."""
    signature = sign(_sig_structure(issuer, payload, domain, network_id))
    return b"".join((_TEMPLATE, issuer, _UNPROTECTED, encode(payload), _SIGNATURE_HEAD, signature))


def parse_envelope(data: bytes, *, network_id: bytes, domain: str = ROLLOUT_DOMAIN) -> Sealed:
    """Parse an envelope by its fixed template. Raises RemoteError (size, envelope) on any other byte."""
    if len(data) > MAX_ENVELOPE_BYTES:  # ENV-1
        raise RemoteError(Layer.SIZE, f"envelope of {len(data)} bytes, the limit is {MAX_ENVELOPE_BYTES}")
    if not data.startswith(_TEMPLATE) or data[_KEY_END : _KEY_END + 1] != _UNPROTECTED:  # ENV-2, ENV-3, ENV-4
        raise RemoteError(Layer.ENVELOPE, "not a COSE_Sign1 with exactly the headers {alg: -19, kid} and {}")
    payload, position = read_byte_string(data, _KEY_END + 1, Layer.ENVELOPE)  # ENV-5
    signature = data[position + len(_SIGNATURE_HEAD) :]
    if not data.startswith(_SIGNATURE_HEAD, position) or len(signature) != SIGNATURE_BYTES:  # ENV-6
        raise RemoteError(Layer.ENVELOPE, "does not end in a 64-byte signature")
    issuer = data[len(_TEMPLATE) : _KEY_END]
    signed = _sig_structure(issuer, payload, domain, network_id)
    return Sealed(issuer, payload, signature, signed, hashlib.sha256(signed).digest(), data)


def open_envelope(sealed: Sealed) -> Opened:
    """Verify the signature. Raises RemoteError (signature); charge the sender, never the issuer that it names."""
    if not verify_signature(sealed.issuer, sealed.signed, sealed.signature):
        raise RemoteError(Layer.SIGNATURE, "the signature is not valid for the named key, this swarm and this version")
    return Opened(sealed.issuer, sealed.envelope_id, sealed.payload, sealed.envelope)
