"""Cases of kind `envelope` of valid form whose signature covers something else (ENV-7)."""

from collections.abc import Iterable, Iterator

import curve
from cases import Case
from envelope_parts import ALG, NETWORK, PAYLOAD, PROTECTED, assembled, fails
from wire import (
    ALICE,
    BOB,
    BYTES,
    EXAMPLE,
    ROLLOUT_DOMAIN,
    Swarm,
    array,
    bstr,
    envelope,
    head,
    protected_header,
    sha256,
    sig_structure,
    text,
)


def cases() -> Iterable[Case]:
    yield from _other_structures()
    yield from _other_contexts()


def unsigned(name: str, data: bytes, rule: str = "ENV-7", note: str = "") -> Case:
    return fails(name, rule, data, layer="signature", grammar=True, note=note)


def _other_structures() -> Iterator[Case]:
    """Signatures of ALICE over bytes similar to the Sig_structure."""
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
        yield unsigned(f"signed over {name}".lower(), assembled(signed=message))


def _other_contexts() -> Iterator[Case]:
    domains = {
        "the next major version": "sapo/rollout/3",
        "another kind": "sapo/task/2",
        "a blank after the domain": "sapo/rollout/2 ",
        "a zero byte after the domain": "sapo/rollout/2\0",
        "a slash after the domain": "sapo/rollout/2/",
        "a domain in capitals": "SAPO/ROLLOUT/1",
        "a domain without a version": "sapo/rollout",
        "an empty domain": "",
    }
    for name, domain in domains.items():
        rule = "VRS-1" if domain == "sapo/rollout/3" else "ENV-7"
        yield unsigned(f"signed for {name}", envelope(PAYLOAD, domain=domain), rule)
    networks = {
        "another swarm": Swarm(genesis=0).network_id,
        "no swarm": b"",
        "the zero swarm": bytes(32),
        "a network id in the other byte order": NETWORK[::-1],
    }
    for name, network_id in networks.items():
        yield unsigned(f"signed for {name}", envelope(PAYLOAD, network_id=network_id))
    nearly = Swarm(max_rounds=EXAMPLE.max_rounds + 1).network_id
    yield unsigned("signed for a swarm with one number changed", envelope(PAYLOAD, network_id=nearly), "MAN-6")

    mine = sig_structure(PROTECTED, PAYLOAD, network_id=NETWORK)
    signature = ALICE.sign(mine)
    flipped = signature[:-33] + bytes([signature[-33] ^ 1]) + signature[-32:]
    number = int.from_bytes(signature[32:], "little")
    yield unsigned("signed by another key than it names", assembled(signature=bstr(BOB.sign(mine))))
    yield unsigned("a bit of the signature flipped", assembled(signature=bstr(flipped)), "SIG-4")
    yield unsigned("a signature of zeros", assembled(signature=bstr(bytes(64))))
    malleated = curve.signature(signature[:32], number + curve.L)
    yield unsigned("a signature with the group order added", assembled(signature=bstr(malleated)), "SIG-1")
