"""Equivocation is proved by two envelopes, and by nothing less."""

from dataclasses import replace

import pytest

from sapo_protocol import RemoteError, prove_equivocation


def envelopes(author, **second):
    header = author.header([b"one"], epoch=3, counter=4)
    return author.envelope(header), author.envelope(replace(author.header([b"two"], epoch=3, counter=4), **second))


def test_two_contents_under_one_counter_are_proof(author, manifest):
    proof = prove_equivocation(*envelopes(author), manifest)
    assert (proof.issuer, proof.epoch, proof.counter) == (author.issuer, 3, 4)


def test_the_proof_fits_four_kilobytes(author, manifest):
    header = author.header([b"one"] * 16)
    assert sum(map(len, (author.envelope(header), author.envelope(replace(header, counter=1))))) <= 4_096


@pytest.mark.parametrize("second", [{"epoch": 2}, {"counter": 5}])
def test_two_rounds_are_none(author, manifest, second):
    with pytest.raises(RemoteError, match="two rounds"):
        prove_equivocation(*envelopes(author, **second), manifest)


def test_two_issuers_are_none(author, other_author, manifest):
    with pytest.raises(RemoteError, match="two issuers"):
        prove_equivocation(envelopes(author)[0], envelopes(other_author)[1], manifest)


def test_the_same_envelope_twice_is_none(author, manifest):
    first, _ = envelopes(author)
    with pytest.raises(RemoteError, match="same content"):
        prove_equivocation(first, first, manifest)


def test_a_forged_half_is_none(author, manifest):
    first, second = envelopes(author)
    with pytest.raises(RemoteError, match="signature"):
        prove_equivocation(first, second[:-1] + bytes([second[-1] ^ 1]), manifest)
