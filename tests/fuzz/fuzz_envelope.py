"""Envelopes: what parses seals to the very same bytes, and only what its key signed opens."""

import contextlib
from collections.abc import Iterator

from harness import KEYS, MANIFEST, Source, refusal_is_short

from sapo_protocol import Opened, RemoteError, open_envelope, parse_envelope, seal
from sapo_protocol.cbor import encode
from sapo_protocol.limits import MAX_ENVELOPE_BYTES

KEY = KEYS[0]


def fuzz(data: bytes) -> None:
    source = Source(data)
    if source.below(2):
        payload = source.take(source.number(2) % 2048)
        envelope = KEY.seal(payload)
        changed = bytearray(envelope)
        while source:
            splice(changed, source)
        opened = check(bytes(changed))
        if changed == envelope and len(envelope) <= MAX_ENVELOPE_BYTES:
            assert opened
            assert opened.payload == payload
    else:
        check(source.rest())


def splice(changed: bytearray, source: Source) -> None:
    """Cut a few bytes at some place, counted from either end, and put others there."""
    place = source.number(2) % 4096 - 2048
    place = place % (len(changed) + 1)
    changed[place : place + source.below(4)] = source.take(source.below(8))


def check(envelope: bytes) -> Opened | None:
    """What parses seals to the same bytes; what opens is to the last bit what the key makes of that payload."""
    with contextlib.suppress(RemoteError), refusal_is_short():
        sealed = parse_envelope(envelope, network_id=MANIFEST.network_id)
        again = seal(
            sealed.payload, issuer=sealed.issuer, sign=lambda _: sealed.signature, network_id=MANIFEST.network_id
        )
        assert again == envelope == sealed.envelope
        assert (len(sealed.issuer), len(sealed.signature)) == (32, 64)
        opened = open_envelope(sealed)
        assert KEY.seal(opened.payload) == envelope == opened.envelope
        assert opened.issuer == KEY.issuer
        return opened
    return None


def seeds() -> Iterator[bytes]:
    for size in (0, 1, 23, 24, 255, 256, 1_800, 2_000):
        payload = bytes(size)
        yield b"\0" + bytes(1) + KEY.seal(payload)[1:]
        yield b"\1" + size.to_bytes(2, "big") + payload
        yield b"\1" + size.to_bytes(2, "big") + payload + bytes.fromhex("080000010001")
    valid = KEY.seal(bytes(24))
    for place in (0, 1, 2, 3, 4, 9, 10, 42, 43, 44, 45, -67, -66, -65, -64, -1):
        changed = bytearray(valid)
        changed[place] ^= 1
        yield b"\0" + changed
    yield b"\0" + valid + b"\0"
    yield b"\0" + valid[:-1]
    for size, wider in ((2, "5802"), (24, "590018"), (256, "5a00000100")):
        yield b"\0" + KEY.seal(bytes(size)).replace(encode(bytes(size)), bytes.fromhex(wider) + bytes(size))
