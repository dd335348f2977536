"""Evidence: exactly two envelopes of one key that contradict each other prove anything."""

import contextlib
from collections.abc import Iterator

from harness import KEYS, MANIFEST, Source, refusal_is_short

from sapo_protocol import (
    Equivocation,
    GroupHeader,
    Header,
    RemoteError,
    decode_evidence,
    encode_evidence,
    encode_header,
    parse_envelope,
    prove_equivocation,
    verify_signature,
)
from sapo_protocol.cbor import encode


def fuzz(data: bytes) -> None:
    source = Source(data)
    if source.number() & 1:
        built(source)
    else:
        proof(source.rest())


def proof(evidence: bytes) -> Equivocation | None:
    """What evidence proves, if anything; what was read encodes to the same bytes."""
    with contextlib.suppress(RemoteError), refusal_is_short():
        accusation = decode_evidence(evidence, MANIFEST)
        assert encode_evidence(*accusation.envelopes) == evidence
        proven = prove_equivocation(accusation, MANIFEST)
        assert proven.evidence == evidence
        assert proven.issuer == accusation.issuer
        assert all(verify_signature(proven.issuer, each.signed, each.signature) for each in accusation.envelopes)
        return proven
    return None


def built(source: Source) -> None:
    """Two signed headers that differ, or not, in all that a header can differ in; then perhaps some bytes changed."""
    keys = [KEYS[source.below(2)] for _ in range(2)]
    headers = [header(source) for _ in range(2)]
    envelopes = [key.seal(encode_header(each)) for key, each in zip(keys, headers, strict=True)]
    order = source.below(4)
    sealed = [parse_envelope(each, network_id=MANIFEST.network_id) for each in envelopes]
    sealed.sort(key=lambda each: each.envelope_id, reverse=order == 1)
    evidence = encode([each.envelope for each in sealed])
    changed = bytearray(evidence)
    while source:
        changed[source.number(2) % len(changed)] ^= source.number()
    proven = proof(bytes(changed))
    contradict = headers[0] != headers[1] and all(
        getattr(headers[0], part) == getattr(headers[1], part) for part in ("epoch", "counter")
    )
    if changed == evidence and keys[0] is keys[1] and contradict and order != 1:
        assert proven is not None
        assert (proven.issuer, proven.epoch, proven.counter) == (keys[0].issuer, headers[0].epoch, headers[0].counter)
    else:
        assert proven is None


def header(source: Source) -> Header:
    claims = tuple(bool(source.below(2)) for _ in range(MANIFEST.completions))
    groups = tuple(GroupHeader(bytes(32), claims, bytes([source.number()]) * 32) for _ in range(1 + source.below(4)))
    return Header(source.below(3), source.below(2), groups)


def seeds() -> Iterator[bytes]:
    count = MANIFEST.completions
    one, other = bytes(count + 4), bytes([*[1] * count, 0, 1, 0, 0])
    for keys in (b"\0\0", b"\0\1"):
        for first, second in ((one, other), (other, one), (one, one), (one, one[:-1] + b"\1")):
            for order in (0, 1):
                yield b"\1" + keys + first + second + bytes([order])
                yield b"\1" + keys + first + second + bytes([order, 0, 9, 1])
    first, second = (
        parse_envelope(KEYS[0].seal(encode_header(header(Source(each)))), network_id=MANIFEST.network_id)
        for each in (one, other)
    )
    valid = encode_evidence(first, second)
    yield b"\0" + valid
    yield b"\0" + valid[:-1] + bytes([valid[-1] ^ 1])
    yield b"\0" + valid + b"\0"
    yield b"\0" + valid[:-1]
    yield b"\0" + encode([second.envelope, first.envelope])
