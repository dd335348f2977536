"""Requests and their answers; which of them are taken is shown by the vectors, all but what is too long for one."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol import (
    Delivered,
    GetRequest,
    GroupHeader,
    InventoryItem,
    Layer,
    ListRequest,
    RemoteError,
    decode_delivery,
    decode_listing,
    decode_request,
    encode_delivery,
    encode_listing,
    encode_message,
    encode_request,
    parse_envelope,
)
from sapo_protocol.limits import MAX_DELIVERY_BYTES

ids = st.binary(min_size=32, max_size=32)
held = st.builds(InventoryItem, ids, st.integers(0, 2**16 - 1))
ascending = st.lists(held, min_size=1, max_size=64, unique_by=lambda each: each.envelope_id).map(
    lambda each: tuple(sorted(each, key=lambda one: one.envelope_id))
)

fetches = st.builds(lambda one, hops: GetRequest((one,), hops), held, st.integers(1, 4))


@given(
    st.builds(ListRequest, st.integers(0, 2**64 - 1), ids | st.just(b"")) | st.builds(GetRequest, ascending) | fetches
)
def test_a_request_is_read_as_it_was_written(request):
    assert decode_request(encode_request(request)) == request


@given(ascending)
def test_a_listing_is_read_as_it_was_written(listing):
    assert decode_listing(encode_listing(listing), ListRequest(0)) == listing


def delivered(author, manifest, size):
    """A message of one body, `size` bytes long, and the request for it."""
    body = bytes(size)
    group = GroupHeader(bytes(32), (True,) * manifest.completions, hashlib.sha256(body).digest())
    envelope = author.envelope(replace(author.header([b""]), groups=(group,)))
    envelope_id = parse_envelope(envelope, network_id=manifest.network_id).envelope_id
    message = encode_message(envelope, (body,))
    return Delivered(envelope_id, message), GetRequest((InventoryItem(envelope_id, 1),))


def test_a_delivery_is_read_as_it_was_written(author, manifest):
    each, request = delivered(author, manifest, 1_000)
    assert decode_delivery(encode_delivery([each.message]), request, manifest) == (each,)


def test_a_delivery_longer_than_one_may_be_is_not_looked_into(manifest):
    with pytest.raises(RemoteError) as refusal:
        decode_delivery(bytes(MAX_DELIVERY_BYTES + 1), GetRequest((InventoryItem(bytes(32), 0),)), manifest)
    assert refusal.value.layer is Layer.PULL
    assert "limit" in str(refusal.value)


def test_a_delivery_as_long_as_one_may_be_is(manifest):
    with pytest.raises(RemoteError) as refusal:
        decode_delivery(bytes(MAX_DELIVERY_BYTES), GetRequest((InventoryItem(bytes(32), 0),)), manifest)
    assert "limit" not in str(refusal.value)
