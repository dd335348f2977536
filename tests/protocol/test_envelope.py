"""The signed envelope: all but payload, key and signature is fixed; the receiver says for which swarm it must be."""

import json
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest
from nacl.signing import VerifyKey

from sapo_protocol import Layer, RemoteError, open_envelope, parse_envelope, seal
from sapo_protocol.limits import MAX_ENVELOPE_BYTES

COSE = Path(__file__).parents[2].parent / "shared" / "vectors" / "cose"


def opened(envelope, manifest, **how):
    return open_envelope(parse_envelope(envelope, network_id=manifest.network_id, **how))


@pytest.fixture
def envelope(author):
    return author.envelope(author.header([b"body"]))


def test_an_envelope_opens_to_what_was_sealed(author, manifest):
    envelope = seal(b"payload", issuer=author.issuer, sign=author.key.sign, network_id=manifest.network_id)
    result = opened(envelope, manifest)
    assert (result.issuer, result.payload, result.envelope) == (author.issuer, b"payload", envelope)


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 1_800])
def test_a_payload_of_any_length_keeps_its_shortest_head(author, manifest, size):
    envelope = seal(bytes(size), issuer=author.issuer, sign=author.key.sign, network_id=manifest.network_id)
    assert opened(envelope, manifest).payload == bytes(size)


def test_it_is_a_cose_sign1_that_a_general_decoder_reads(author, envelope):
    tag = cbor2.loads(envelope)
    protected, unprotected, _, signature = tag.value
    assert tag.tag == 18
    assert cbor2.loads(protected) == {1: -19, 4: author.issuer}
    assert (dict(unprotected), len(signature)) == ({}, 64)


def test_no_flipped_bit_is_accepted(envelope, manifest):
    number, size = int.from_bytes(envelope, "big"), len(envelope)
    for bit in range(8 * size):
        with pytest.raises(RemoteError):
            opened((number ^ 1 << bit).to_bytes(size, "big"), manifest)


def test_no_truncation_is_accepted(envelope, manifest):
    for size in range(len(envelope)):
        with pytest.raises(RemoteError):
            opened(envelope[:size], manifest)


def test_another_swarm_is_a_bad_signature(envelope, manifest):
    with pytest.raises(RemoteError) as refusal:
        opened(envelope, replace(manifest, name="another"))
    assert refusal.value.layer is Layer.SIGNATURE


def test_another_kind_of_message_is_a_bad_signature(envelope, manifest):
    with pytest.raises(RemoteError) as refusal:
        opened(envelope, manifest, domain="sapo/evidence/1")
    assert refusal.value.layer is Layer.SIGNATURE


def test_the_key_of_another_is_a_bad_signature(author, other_author, envelope, manifest):
    with pytest.raises(RemoteError) as refusal:
        opened(envelope.replace(author.issuer, other_author.issuer), manifest)
    assert refusal.value.layer is Layer.SIGNATURE


TEMPLATE = {
    "no tag": (b"\xd2\x84", b"\x84"),
    "another tag": (b"\xd2\x84", b"\xd1\x84"),
    "five elements": (b"\xd2\x84", b"\xd2\x85"),
    "algorithm EdDSA in place of Ed25519": (b"\xa2\x01\x32", b"\xa2\x01\x27"),
    "algorithm ES256": (b"\xa2\x01\x32", b"\xa2\x01\x26"),
    "a protected header of three entries": (b"\x58\x26\xa2", b"\x58\x26\xa3"),
}


@pytest.mark.parametrize(("old", "new"), TEMPLATE.values(), ids=TEMPLATE.keys())
def test_any_other_template_is_refused_before_the_signature(envelope, manifest, old, new):
    with pytest.raises(RemoteError) as refusal:
        opened(envelope.replace(old, new, 1), manifest)
    assert refusal.value.layer is Layer.ENVELOPE


def test_something_in_the_unprotected_header_is_refused(author, envelope, manifest):
    at = envelope.index(author.issuer) + 32
    with pytest.raises(RemoteError) as refusal:
        opened(envelope[:at] + b"\xa1\x01\x26" + envelope[at + 1 :], manifest)
    assert refusal.value.layer is Layer.ENVELOPE


def test_a_payload_length_in_more_bytes_than_needed_is_refused(author, manifest):
    envelope = seal(b"short", issuer=author.issuer, sign=author.key.sign, network_id=manifest.network_id)
    longer = envelope.replace(b"\x45short", b"\x58\x05short")
    with pytest.raises(RemoteError) as refusal:
        opened(longer, manifest)
    assert refusal.value.layer is Layer.ENVELOPE


def test_an_envelope_over_the_limit_is_refused_by_size(author, manifest):
    envelope = seal(
        bytes(MAX_ENVELOPE_BYTES), issuer=author.issuer, sign=author.key.sign, network_id=manifest.network_id
    )
    with pytest.raises(RemoteError) as refusal:
        opened(envelope, manifest)
    assert refusal.value.layer is Layer.SIZE


def test_the_envelope_id_does_not_depend_on_the_signature(envelope, manifest):
    twin = envelope[:-1] + bytes([envelope[-1] ^ 1])
    ids = {parse_envelope(each, network_id=manifest.network_id).envelope_id for each in (envelope, twin)}
    assert len(ids) == 1


@pytest.mark.parametrize("name", ["sign-pass-01", "sign-pass-02", "sign-pass-03", "sign-fail-01", "eddsa-sig-01"])
def test_public_cose_examples_of_other_profiles_are_refused(manifest, name):
    path = COSE / f"{name}.json"
    if not path.exists():
        pytest.skip("the public COSE examples are not at hand beside the repository (../shared/vectors)")
    envelope = bytes.fromhex(json.loads(path.read_text())["output"]["cbor"])
    with pytest.raises(RemoteError) as refusal:
        opened(envelope, manifest)
    assert refusal.value.layer is Layer.ENVELOPE


def test_the_public_eddsa_example_verifies_over_the_structure_that_we_build():
    path = COSE / "eddsa-sig-01.json"
    if not path.exists():
        pytest.skip("the public COSE examples are not at hand beside the repository (../shared/vectors)")
    example = json.loads(path.read_text())
    protected, _, payload, signature = cbor2.loads(bytes.fromhex(example["output"]["cbor"])).value
    structure = cbor2.dumps(["Signature1", protected, b"", payload], canonical=True)
    assert structure.hex().upper() == example["intermediates"]["ToBeSign_hex"].upper()
    public = bytes.fromhex(example["input"]["sign0"]["key"]["x_hex"])
    VerifyKey(public).verify(structure, signature)
