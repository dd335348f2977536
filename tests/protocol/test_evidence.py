"""Equivocation is proved by two envelopes, and by nothing less."""

from dataclasses import replace

import pytest

from sapo_protocol import Layer, RemoteError, decode_evidence, encode_evidence, parse_envelope, prove_equivocation
from sapo_protocol.cbor import encode
from sapo_protocol.limits import MAX_EVIDENCE_BYTES


def sealed(envelope, manifest):
    return parse_envelope(envelope, network_id=manifest.network_id)


def evidence(author, manifest, *, other=None, **second):
    one = author.envelope(author.header([b"one"], epoch=3, counter=4))
    two = (other or author).envelope(replace(author.header([b"two"], epoch=3, counter=4), **second))
    return encode_evidence(sealed(one, manifest), sealed(two, manifest))


def proved(data, manifest):
    return prove_equivocation(decode_evidence(data, manifest), manifest)


def layer_of(data, manifest):
    with pytest.raises(RemoteError) as refusal:
        proved(data, manifest)
    return refusal.value.layer


def test_two_contents_under_one_counter_are_proof_and_the_message_is_kept(author, manifest):
    data = evidence(author, manifest)
    proof = proved(data, manifest)
    assert (proof.issuer, proof.epoch, proof.counter, proof.evidence) == (author.issuer, 3, 4, data)


def test_the_proof_of_two_full_rounds_fits_its_limit(author, manifest):
    wide = replace(manifest, completions=16)
    writer = replace(author, manifest=wide)
    pair = [writer.envelope(replace(writer.header([text] * 16), counter=599)) for text in (b"one", b"two")]
    assert len(encode_evidence(*[sealed(envelope, wide) for envelope in pair])) <= MAX_EVIDENCE_BYTES


@pytest.mark.parametrize("second", [{"epoch": 2}, {"counter": 5}])
def test_two_rounds_are_none(author, manifest, second):
    assert layer_of(evidence(author, manifest, **second), manifest) is Layer.EVIDENCE


def test_two_issuers_are_none(author, other_author, manifest):
    assert layer_of(evidence(author, manifest, other=other_author), manifest) is Layer.EVIDENCE


def test_the_same_envelope_twice_is_none(author, manifest):
    one = author.envelope(author.header([b"one"]))
    assert layer_of(encode([one, one]), manifest) is Layer.EVIDENCE


def test_the_pair_in_the_other_order_is_no_second_form_of_it(author, manifest):
    data = evidence(author, manifest)
    first, second = (each.envelope for each in decode_evidence(data, manifest).envelopes)
    assert layer_of(encode([second, first]), manifest) is Layer.EVIDENCE


def test_a_forged_half_is_none(author, manifest):
    data = evidence(author, manifest)
    assert layer_of(data[:-1] + bytes([data[-1] ^ 1]), manifest) is Layer.SIGNATURE


def test_three_envelopes_are_no_evidence(author, manifest):
    one = author.envelope(author.header([b"one"]))
    assert layer_of(encode([one, one, one]), manifest) is Layer.FRAME


def test_more_than_the_limit_is_refused_by_size(manifest):
    assert layer_of(bytes(MAX_EVIDENCE_BYTES + 1), manifest) is Layer.SIZE
