"""Cases of kind `envelope`: each fixed byte, and each signed part (ENV-1 to ENV-8)."""

from collections.abc import Iterable, Iterator

import curve
import envelope_signed
from cases import Case
from envelope_parts import ALG, KID, NETWORK, PAYLOAD, PROTECTED, assembled, fails, passes
from wire import (
    ALICE,
    BOB,
    BYTES,
    MAP,
    NULL,
    TEXT,
    Swarm,
    array,
    bstr,
    envelope,
    head,
    sig_structure,
    text,
    uint,
)

LARGEST = 2_000


def cases() -> Iterable[Case]:
    yield from _accepted()
    yield fails("2001 bytes", "ENV-1", envelope(bytes(LARGEST - 111)), layer="size", grammar=True)
    yield from _starts()
    yield from _protected_headers()
    yield from _unprotected_headers()
    yield from _payloads()
    yield from _signatures()
    yield from envelope_signed.cases()


def _accepted() -> Iterator[Case]:
    yield passes("2000 bytes", "ENV-1", bytes(LARGEST - 112))
    yield passes("a payload of one byte", "ENV-2", PAYLOAD)
    yield passes("another issuer", "ENV-3", PAYLOAD, key=BOB)
    yield passes("a payload like a header", "ENV-4", head(MAP, 1) + ALG)
    for length in (0, 23, 24, 255, 256):
        yield passes(f"a payload of {length} bytes", "ENV-5", bytes(length))
    yield passes("a payload that is no item", "ENV-5", b"\xff", note="An envelope does not look into its payload.")
    yield passes("a payload that is an envelope", "ENV-5", envelope(PAYLOAD))
    yield passes("a payload that ends like an envelope", "ENV-6", bstr(bytes(64)))
    yield passes("another swarm", "ENV-7", PAYLOAD, network_id=Swarm(genesis=0).network_id)
    yield passes("another domain", "ENV-7", PAYLOAD, domain="sapo/task/2")
    yield passes("a long domain beyond ascii", "ENV-7", PAYLOAD, domain="über/" * 20)
    note = "Its signature differs from that of the payload of one byte, its id does not."
    again = curve.sign(ALICE.seed, sig_structure(PROTECTED, PAYLOAD, network_id=NETWORK), nonce=1)
    yield passes("one content signed again", "ENV-8", PAYLOAD, note=note, data=assembled(signature=bstr(again)))


def _starts() -> Iterator[Case]:
    def other(name: str, data: bytes, *, grammar: bool | None = False) -> Case:
        return fails(name, "ENV-2", data, grammar=grammar)

    yield other("no bytes", b"", grammar=None)
    yield other("no tag", assembled(start=b"\x84"))
    yield other("tag 17", assembled(start=b"\xd1\x84"))
    yield other("tag 98", assembled(start=b"\xd8\x62\x84"))
    yield other("tag 18 in two bytes", assembled(start=b"\xd8\x12\x84"), grammar=True)
    yield other("tag 18 in nine bytes", assembled(start=b"\xdb" + bytes(7) + b"\x12\x84"), grammar=True)
    yield other("tag 18 twice", assembled(start=b"\xd2\xd2\x84"))
    yield other("tag 55799 before tag 18", assembled(start=b"\xd9\xd9\xf7\xd2\x84"))
    yield other("an array of three", assembled(start=b"\xd2\x83", signature=b""))
    yield other("an array of five", assembled(start=b"\xd2\x85", end=NULL))
    yield other("an array whose length takes a byte", assembled(start=b"\xd2\x98\x04"), grammar=True)
    yield other("an indefinite array", assembled(start=b"\xd2\x9f", end=b"\xff"), grammar=True)
    yield other("the parts without an array", assembled(start=b"\xd2"), grammar=None)
    yield other("a byte before it", b"\x00" + assembled(), grammar=None)


def _protected_headers() -> Iterator[Case]:
    """The signature covers each header as given, so a COSE library would accept many of them."""
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
        yield fails(name, "ENV-3", assembled(header), grammar=len(header) == len(PROTECTED))

    moved = {"algorithm": (KID, ALG), "key": (ALG, KID)}
    for what, (kept, unprotected) in moved.items():
        data = assembled(b"\xa1" + kept, unprotected=b"\xa1" + unprotected)
        yield fails(f"the {what} moved to the unprotected header", "ENV-3", data)

    def other(name: str, *, grammar: bool, **parts: bytes) -> Case:
        return fails(name, "ENV-3", assembled(**parts), grammar=grammar)

    yield other("the protected length in two bytes", grammar=True, protected=head(BYTES, 38, 2) + PROTECTED)
    yield other("the protected length in eight bytes", grammar=True, protected=head(BYTES, 38, 8) + PROTECTED)
    yield other("the protected header in parts", grammar=True, protected=b"\x5f" + bstr(PROTECTED) + b"\xff")
    yield other("the protected header as a map", grammar=False, protected=PROTECTED)
    yield other("the protected header null", grammar=False, protected=NULL)


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
        yield fails(name, "ENV-4", assembled(unprotected=unprotected), grammar=False if unprotected else None)
    yield fails("an unprotected length in a byte", "ENV-4", assembled(unprotected=b"\xb8\x00"), grammar=True)
    yield fails("an indefinite unprotected header", "ENV-4", assembled(unprotected=b"\xbf\xff"), grammar=True)


def _payloads() -> Iterator[Case]:
    for width, what in ((1, "one byte"), (2, "two bytes"), (4, "four bytes"), (8, "eight bytes")):
        longer = head(BYTES, 1, width) + PAYLOAD
        yield fails(f"the payload length in {what}", "ENV-5", assembled(payload=longer), grammar=True)
    medium = bytes(255)
    longer = head(BYTES, 255, 2) + medium
    yield fails("the payload length 255 in two bytes", "ENV-5", assembled(content=medium, payload=longer), grammar=True)
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
        yield fails(name, "ENV-5", assembled(payload=payload), grammar=grammar)


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
        yield fails(name, "ENV-6", assembled(signature=form), grammar=grammar)
    yield fails("a byte after it", "ENV-6", assembled(end=b"\x00"), grammar=None)
    yield fails("a line feed after it", "ENV-6", assembled(end=b"\n"), grammar=None)
    yield fails("a copy after it", "ENV-6", assembled(end=assembled()), grammar=None)
