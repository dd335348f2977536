"""Cases of kind `envelope`: each fixed byte, each thing that is signed (ENV-1 to ENV-8)."""

from collections.abc import Iterable, Iterator, Mapping

import curve
from cases import ACCEPT, Case
from wire import (
    ALICE,
    BOB,
    BYTES,
    EXAMPLE,
    MAP,
    NULL,
    ROLLOUT_DOMAIN,
    TEXT,
    Key,
    Swarm,
    array,
    bstr,
    envelope,
    head,
    protected_header,
    sha256,
    sig_structure,
    text,
    uint,
)

PAYLOAD = b"\x00"
KEY = bstr(ALICE.public)
PROTECTED = protected_header(ALICE.public)
ALG, KID = bytes.fromhex("01 32"), b"\x04" + KEY
NETWORK = EXAMPLE.network_id
LARGEST = 2_000


def _assembled(
    header: bytes = PROTECTED, content: bytes = PAYLOAD, *, signed: bytes | None = None, **parts: bytes
) -> bytes:
    """An envelope of ALICE whose signature covers what it holds, or `signed`; `parts` replaces encoded parts."""
    signature = ALICE.sign(signed or sig_structure(header, content, network_id=NETWORK))
    whole = {
        "start": bytes.fromhex("d2 84"),
        "protected": bstr(header),
        "unprotected": b"\xa0",
        "payload": bstr(content),
        "signature": bstr(signature),
        "end": b"",
    }
    return b"".join((whole | parts).values())


def _input(data: bytes, network_id: bytes = NETWORK, domain: str = ROLLOUT_DOMAIN) -> Mapping[str, object]:
    return {"network_id": network_id, "domain": domain, "bytes": data}


def _passes(
    name: str,
    rule: str,
    payload: bytes,
    *,
    key: Key = ALICE,
    network_id: bytes = NETWORK,
    domain: str = ROLLOUT_DOMAIN,
    note: str = "",
    data: bytes | None = None,
) -> Case:
    data = data or envelope(payload, key, network_id=network_id, domain=domain)
    signed = sig_structure(protected_header(key.public), payload, network_id=network_id, domain=domain)
    output = {"issuer": key.public, "envelope_id": sha256(signed), "payload": payload}
    return Case(name, rule, "envelope", _input(data, network_id, domain), ACCEPT, output, note, grammar=True)


def _fails(
    name: str, rule: str, data: bytes, *, layer: str = "envelope", grammar: bool | None = False, note: str = ""
) -> Case:
    return Case(name, rule, "envelope", _input(data), layer, note=note, grammar=grammar)


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield _fails("2001 bytes", "ENV-1", envelope(bytes(LARGEST - 111)), layer="size", grammar=True)
    yield from _starts()
    yield from _protected_headers()
    yield from _unprotected_headers()
    yield from _payloads()
    yield from _signatures()
    yield from _other_structures()
    yield from _other_contexts()


def _accepted() -> Iterator[Case]:
    yield _passes("2000 bytes", "ENV-1", bytes(LARGEST - 112))
    yield _passes("a payload of one byte", "ENV-2", PAYLOAD)
    yield _passes("another issuer", "ENV-3", PAYLOAD, key=BOB)
    yield _passes("a payload like a header", "ENV-4", head(MAP, 1) + ALG)
    for length in (0, 23, 24, 255, 256):
        yield _passes(f"a payload of {length} bytes", "ENV-5", bytes(length))
    yield _passes("a payload that is no item", "ENV-5", b"\xff", note="An envelope does not look into its payload.")
    yield _passes("a payload that is an envelope", "ENV-5", envelope(PAYLOAD))
    yield _passes("a payload that ends like an envelope", "ENV-6", bstr(bytes(64)))
    yield _passes("another swarm", "ENV-7", PAYLOAD, network_id=Swarm(genesis=0).network_id)
    yield _passes("another domain", "ENV-7", PAYLOAD, domain="sapo/task/1")
    yield _passes("a long domain beyond ASCII".lower(), "ENV-7", PAYLOAD, domain="über/" * 20)
    note = "Its signature differs from that of the payload of one byte, its id does not."
    again = curve.sign(ALICE.seed, sig_structure(PROTECTED, PAYLOAD, network_id=NETWORK), nonce=1)
    yield _passes("one content signed again", "ENV-8", PAYLOAD, note=note, data=_assembled(signature=bstr(again)))


def _starts() -> Iterator[Case]:
    def fails(name: str, data: bytes, *, grammar: bool | None = False) -> Case:
        return _fails(name, "ENV-2", data, grammar=grammar)

    yield fails("no bytes", b"", grammar=None)
    yield fails("no tag", _assembled(start=b"\x84"))
    yield fails("tag 17", _assembled(start=b"\xd1\x84"))
    yield fails("tag 98", _assembled(start=b"\xd8\x62\x84"))
    yield fails("tag 18 in two bytes", _assembled(start=b"\xd8\x12\x84"), grammar=True)
    yield fails("tag 18 in nine bytes", _assembled(start=b"\xdb" + bytes(7) + b"\x12\x84"), grammar=True)
    yield fails("tag 18 twice", _assembled(start=b"\xd2\xd2\x84"))
    yield fails("tag 55799 before tag 18", _assembled(start=b"\xd9\xd9\xf7\xd2\x84"))
    yield fails("an array of three", _assembled(start=b"\xd2\x83", signature=b""))
    yield fails("an array of five", _assembled(start=b"\xd2\x85", end=NULL))
    yield fails("an array whose length takes a byte", _assembled(start=b"\xd2\x98\x04"), grammar=True)
    yield fails("an indefinite array", _assembled(start=b"\xd2\x9f", end=b"\xff"), grammar=True)
    yield fails("the parts without an array", _assembled(start=b"\xd2"), grammar=None)
    yield fails("a byte before it", b"\x00" + _assembled(), grammar=None)


def _protected_headers() -> Iterator[Case]:
    """Each is signed as it stands, so that a COSE library would take many of them."""
    headers = {
        "algorithm minus 8": b"\xa2\x01\x27" + KID,
        "algorithm minus 7": b"\xa2\x01\x26" + KID,
        "algorithm 19": b"\xa2\x01\x13" + KID,
        "the algorithm in two bytes": b"\xa2\x01\x38\x12" + KID,
        "the algorithm as text": b"\xa2\x01" + text("Ed25519") + KID,
        "the algorithm missing": b"\xa1" + KID,
        "the algorithm twice": b"\xa3" + ALG + ALG + KID,
        "the label of the algorithm in two bytes": b"\xa2\x18\x01\x32" + KID,
        "the label of the algorithm as text": b"\xa2" + text("alg") + b"\x32" + KID,
        "the key missing": b"\xa1" + ALG,
        "the key first": b"\xa2" + KID + ALG,
        "the key as text": b"\xa2" + ALG + b"\x04" + head(TEXT, 32) + b"a" * 32,
        "a key of 31 bytes": b"\xa2" + ALG + b"\x04" + bstr(ALICE.public[:31]),
        "a key of 33 bytes": b"\xa2" + ALG + b"\x04" + bstr(ALICE.public + b"\x00"),
        "a key whose length takes two bytes": b"\xa2" + ALG + b"\x04" + head(BYTES, 32, 2) + ALICE.public,
        "a key that a libp2p key holds": b"\xa2" + ALG + b"\x04" + bstr(bytes.fromhex("08 01 12 20") + ALICE.public),
        "a content type": b"\xa3" + ALG + bytes.fromhex("03 18 3c") + KID,
        "a critical label": b"\xa3" + ALG + bytes.fromhex("02 81 04") + KID,
        "a label of its own": b"\xa3" + ALG + KID + text("x") + uint(0),
        "a protected map whose length takes a byte": b"\xb8\x02" + ALG + KID,
        "an indefinite protected map": b"\xbf" + ALG + KID + b"\xff",
        "an empty protected map": b"\xa0",
        "a byte after the protected map": PROTECTED + b"\x00",
        "no protected header": b"",
    }
    for name, header in headers.items():
        yield _fails(name, "ENV-3", _assembled(header), grammar=len(header) == len(PROTECTED))

    def fails(name: str, *, grammar: bool, **parts: bytes) -> Case:
        return _fails(name, "ENV-3", _assembled(**parts), grammar=grammar)

    yield fails("the protected length in two bytes", grammar=True, protected=head(BYTES, 38, 2) + PROTECTED)
    yield fails("the protected length in eight bytes", grammar=True, protected=head(BYTES, 38, 8) + PROTECTED)
    yield fails("the protected header in parts", grammar=True, protected=b"\x5f" + bstr(PROTECTED) + b"\xff")
    yield fails("the protected header as a map", grammar=False, protected=PROTECTED)
    yield fails("the protected header null", grammar=False, protected=NULL)


def _unprotected_headers() -> Iterator[Case]:
    headers = {
        "the algorithm in both headers": b"\xa1" + ALG,
        "the key in both headers": b"\xa1" + KID,
        "an unprotected label of its own": b"\xa1" + text("x") + uint(0),
        "an unprotected header null": NULL,
        "an unprotected header as an array": b"\x80",
        "an unprotected header as a byte string": bstr(b"\xa0"),
        "an unprotected header left out": b"",
    }
    for name, unprotected in headers.items():
        yield _fails(name, "ENV-4", _assembled(unprotected=unprotected), grammar=False if unprotected else None)
    yield _fails("an unprotected length in a byte", "ENV-4", _assembled(unprotected=b"\xb8\x00"), grammar=True)
    yield _fails("an indefinite unprotected header", "ENV-4", _assembled(unprotected=b"\xbf\xff"), grammar=True)


def _payloads() -> Iterator[Case]:
    for width, what in ((1, "one byte"), (2, "two bytes"), (4, "four bytes"), (8, "eight bytes")):
        longer = head(BYTES, 1, width) + PAYLOAD
        yield _fails(f"the payload length in {what}", "ENV-5", _assembled(payload=longer), grammar=True)
    medium = bytes(255)
    longer = head(BYTES, 255, 2) + medium
    yield _fails(
        "the payload length 255 in two bytes", "ENV-5", _assembled(content=medium, payload=longer), grammar=True
    )
    payloads = {
        "a detached payload": (NULL, False),
        "a payload of text": (text("a"), False),
        "a payload that is an integer": (uint(0), False),
        "a payload that is a map": (b"\xa0", False),
        "a payload within an array": (array([bstr(PAYLOAD)]), False),
        "a payload under tag 24": (b"\xd8\x18" + bstr(PAYLOAD), False),
        "a payload in parts": (b"\x5f" + bstr(PAYLOAD) + b"\xff", True),
        "a payload of reserved length": (b"\x5c" + bytes(28), None),
        "a payload shorter than it claims": (head(BYTES, 2) + PAYLOAD, None),
        "a payload longer than it claims": (bstr(PAYLOAD) + b"\x00", None),
        "a payload that claims 2 to the 64 less one": (head(BYTES, 2**64 - 1) + PAYLOAD, None),
        "a payload left out": (b"", None),
    }
    for name, (payload, grammar) in payloads.items():
        yield _fails(name, "ENV-5", _assembled(payload=payload), grammar=grammar)


def _signatures() -> Iterator[Case]:
    signature = ALICE.sign(sig_structure(PROTECTED, PAYLOAD, network_id=NETWORK))
    forms = {
        "a signature of 63 bytes": (bstr(signature[:-1]), False),
        "a signature of 65 bytes": (bstr(signature + b"\x00"), False),
        "an empty signature": (bstr(b""), False),
        "a signature whose length takes two bytes": (head(BYTES, 64, 2) + signature, True),
        "a signature in parts": (b"\x5f" + bstr(signature) + b"\xff", True),
        "a signature of text": (text("a" * 64), False),
        "a signature null": (NULL, False),
        "a signature within an array": (array([bstr(signature)]), False),
        "a signature cut after 63 bytes": (bstr(signature)[:-1], None),
        "a signature left out": (b"", None),
    }
    for name, (form, grammar) in forms.items():
        yield _fails(name, "ENV-6", _assembled(signature=form), grammar=grammar)
    yield _fails("a byte after it", "ENV-6", _assembled(end=b"\x00"), grammar=None)
    yield _fails("a line feed after it", "ENV-6", _assembled(end=b"\n"), grammar=None)
    yield _fails("a copy after it", "ENV-6", _assembled(end=_assembled()), grammar=None)


def _unsigned(name: str, data: bytes, rule: str = "ENV-7", note: str = "") -> Case:
    return _fails(name, rule, data, layer="signature", grammar=True, note=note)


def _other_structures() -> Iterator[Case]:
    """Signatures of ALICE over something near the Sig_structure."""
    aad = array([text(ROLLOUT_DOMAIN), bstr(NETWORK)])

    def structure(
        context: bytes = text("Signature1"),
        protected: bytes = bstr(PROTECTED),
        aad: bytes = bstr(aad),
        payload: bytes = bstr(PAYLOAD),
    ) -> bytes:
        return array([context, protected, aad, payload])

    whole = structure()
    signed = {
        "the payload alone": PAYLOAD,
        "the hash of the structure": sha256(whole),
        "a structure without its array": whole[1:],
        "a structure and a zero byte": whole + b"\x00",
        "an indefinite structure": b"\x9f" + whole[1:] + b"\xff",
        "the context Signature": structure(context=text("Signature")),
        "the context CounterSignature": structure(context=text("CounterSignature")),
        "the context MAC0": structure(context=text("MAC0")),
        "no context": array([bstr(PROTECTED), bstr(aad), bstr(PAYLOAD)]),
        "an empty protected header": structure(protected=bstr(b"")),
        "the protected header without its key": structure(protected=bstr(b"\xa1" + ALG)),
        "the protected header as a map": structure(protected=PROTECTED),
        "the protected header of another key": structure(protected=bstr(protected_header(BOB.public))),
        "an empty external aad": structure(aad=bstr(b"")),
        "no external aad": array([text("Signature1"), bstr(PROTECTED), bstr(PAYLOAD)]),
        "the external aad as an array": structure(aad=aad),
        "the external aad without its array": structure(aad=bstr(aad[1:])),
        "the external aad in the other order": structure(aad=bstr(array([bstr(NETWORK), text(ROLLOUT_DOMAIN)]))),
        "the external aad as joined bytes": structure(aad=bstr(ROLLOUT_DOMAIN.encode() + NETWORK)),
        "the domain as bytes": structure(aad=bstr(array([bstr(ROLLOUT_DOMAIN.encode()), bstr(NETWORK)]))),
        "the domain alone": structure(aad=bstr(text(ROLLOUT_DOMAIN))),
        "the network id as hexadecimal text": structure(aad=bstr(array([text(ROLLOUT_DOMAIN), text(NETWORK.hex())]))),
        "the network id alone": structure(aad=bstr(bstr(NETWORK))),
        "the payload before the external aad": structure(aad=bstr(PAYLOAD), payload=bstr(aad)),
        "the payload without its head": structure(payload=PAYLOAD),
        "the payload with a longer head": structure(payload=head(BYTES, 1, 1) + PAYLOAD),
        "another payload": structure(payload=bstr(b"\x01")),
        "an empty payload": structure(payload=bstr(b"")),
    }
    for name, message in signed.items():
        yield _unsigned(f"signed over {name}".lower(), _assembled(signed=message))


def _other_contexts() -> Iterator[Case]:
    domains = {
        "the next major version": "sapo/rollout/2",
        "another kind": "sapo/task/1",
        "a blank after the domain": "sapo/rollout/1 ",
        "a zero byte after the domain": "sapo/rollout/1\0",
        "a slash after the domain": "sapo/rollout/1/",
        "a domain in capitals": "SAPO/ROLLOUT/1",
        "a domain without a version": "sapo/rollout",
        "an empty domain": "",
    }
    for name, domain in domains.items():
        rule = "VRS-1" if domain == "sapo/rollout/2" else "ENV-7"
        yield _unsigned(f"signed for {name}", envelope(PAYLOAD, domain=domain), rule)
    networks = {
        "another swarm": Swarm(genesis=0).network_id,
        "no swarm": b"",
        "the zero swarm": bytes(32),
        "a network id in the other byte order": NETWORK[::-1],
    }
    for name, network_id in networks.items():
        yield _unsigned(f"signed for {name}", envelope(PAYLOAD, network_id=network_id))
    nearly = Swarm(max_rounds=EXAMPLE.max_rounds + 1).network_id
    yield _unsigned("signed for a swarm with one number changed", envelope(PAYLOAD, network_id=nearly), "MAN-6")

    mine = sig_structure(PROTECTED, PAYLOAD, network_id=NETWORK)
    signature = ALICE.sign(mine)
    flipped = signature[:-33] + bytes([signature[-33] ^ 1]) + signature[-32:]
    number = int.from_bytes(signature[32:], "little")
    yield _unsigned("signed by another key than it names", _assembled(signature=bstr(BOB.sign(mine))))
    yield _unsigned("a bit of the signature flipped", _assembled(signature=bstr(flipped)), "SIG-4")
    yield _unsigned("a signature of zeros", _assembled(signature=bstr(bytes(64))))
    malleated = curve.signature(signature[:32], number + curve.L)
    yield _unsigned("a signature with the group order added", _assembled(signature=bstr(malleated)), "SIG-1")
