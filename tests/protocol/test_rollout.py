"""Header, bodies and message: what a signed round may look like, field by field."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol import (
    Body,
    Completion,
    Finish,
    Layer,
    RemoteError,
    decode_body,
    decode_header,
    decode_message,
    encode_body,
    encode_header,
    encode_message,
    load_manifest,
    open_message,
    parse_envelope,
)
from sapo_protocol.cbor import decode, encode

STARTER = load_manifest("starter")


def layer_of(function, *arguments):
    with pytest.raises(RemoteError) as refusal:
        function(*arguments)
    return refusal.value.layer


@pytest.fixture
def header(author):
    return author.header([b"one", b"two"], epoch=7, counter=3)


@pytest.fixture
def table(header):
    return decode(encode_header(header), limit=2_000)


def test_a_header_survives_a_round_trip(header, manifest):
    assert decode_header(encode_header(header), manifest) == header


def test_a_body_survives_a_round_trip(author, manifest):
    body = Body(author.body().completions, model="seed")
    assert decode_body(encode_body(body), manifest) == body


def test_a_claim_is_any_level_that_a_byte_can_hold(table, manifest):
    table["groups"][0]["claims"] = bytes([255, *range(7)])
    assert decode_header(encode(table), manifest).groups[0].claims == (255, 0, 1, 2, 3, 4, 5, 6)


def test_unknown_keys_inside_x_are_accepted_and_ignored(table, header, manifest):
    table["x"] = {"later": [1, {"nested": True}]}
    assert decode_header(encode(table), manifest) == header


MUTATIONS = {
    "an unknown key": lambda t: t | {"extra": 1},
    "a missing key": lambda t: {k: v for k, v in t.items() if k != "epoch"},
    "an epoch that is text": lambda t: t | {"epoch": "7"},
    "an epoch that is a boolean": lambda t: t | {"epoch": True},
    "a counter at the maximum": lambda t: t | {"counter": 600},
    "no groups": lambda t: t | {"groups": []},
    "seventeen groups": lambda t: t | {"groups": [t["groups"][0]] * 17},
    "groups that are a map": lambda t: t | {"groups": {}},
    "a group that is a list": lambda t: t | {"groups": [[]]},
    "a group with an x of its own": lambda t: t | {"groups": [t["groups"][0] | {"x": {}}]},
    "a digest of 31 bytes": lambda t: t | {"groups": [t["groups"][0] | {"digest": bytes(31)}]},
    "a body hash that is text": lambda t: t | {"groups": [t["groups"][0] | {"body": "0" * 32}]},
    "one claim too few": lambda t: t | {"groups": [t["groups"][0] | {"claims": bytes(7)}]},
    "claims that are numbers": lambda t: t | {"groups": [t["groups"][0] | {"claims": [1] * 8}]},
    "x that is a list": lambda t: t | {"x": []},
    "x over its limit": lambda t: t | {"x": {"k": bytes(256)}},
    "a list in place of the map": list,
}


@pytest.mark.parametrize("mutate", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_header_is_refused_with(table, manifest, mutate):
    assert layer_of(decode_header, encode(mutate(table)), manifest) is Layer.HEADER


def test_the_last_counter_of_an_epoch_is_accepted(table, manifest):
    assert decode_header(encode(table | {"counter": 599}), manifest).counter == 599


BODY_MUTATIONS = {
    "one completion too many": lambda t: t | {"completions": [*t["completions"], t["completions"][0]]},
    "an unknown key": lambda t: t | {"reward": 1},
    "a completion with an unknown key": lambda t: t | {"completions": [t["completions"][0] | {"r": 1}] * 8},
    "a turn that is bytes": lambda t: t | {"completions": [t["completions"][0] | {"turns": [b"x"]}] * 8},
    "turns that are a text": lambda t: t | {"completions": [t["completions"][0] | {"turns": "x"}] * 8},
    "no turns": lambda t: t | {"completions": [t["completions"][0] | {"turns": []}] * 8},
    "two turns where every task has one": lambda t: (
        t | {"completions": [t["completions"][0] | {"turns": ["x", "y"]}] * 8}
    ),
    "an unknown finish": lambda t: t | {"completions": [t["completions"][0] | {"finish": "error"}] * 8},
    "a finish that is a number": lambda t: t | {"completions": [t["completions"][0] | {"finish": 1}] * 8},
    "a completion over the limit": lambda t: t | {"completions": [t["completions"][0] | {"turns": ["x" * 1025]}] * 8},
    "a completion over the limit in bytes, not characters": lambda t: (
        t | {"completions": [t["completions"][0] | {"turns": ["\u00e9" * 513]}] * 8}
    ),
    "a model label of 65 bytes": lambda t: t | {"model": "m" * 65},
}


@pytest.mark.parametrize("mutate", BODY_MUTATIONS.values(), ids=BODY_MUTATIONS.keys())
def test_a_body_is_refused_with(author, manifest, mutate):
    table = decode(encode_body(author.body()), limit=100_000)
    assert layer_of(decode_body, encode(mutate(table)), manifest) is Layer.BODY


def test_a_completion_at_the_limit_is_accepted(manifest):
    body = Body((Completion(("\u00e9" * 512,), Finish.LENGTH),) * 8)
    assert decode_body(encode_body(body), manifest) == body


def talking(manifest, turns):
    """The manifest with so many turns for its last task."""
    return replace(manifest, tasks=(*manifest.tasks[:-1], replace(manifest.tasks[-1], turns=turns)))


@given(turns=st.lists(st.text(max_size=20), min_size=1, max_size=8), most=st.integers(1, 8))
def test_a_completion_has_at_most_the_turns_of_the_task_with_the_most(turns, most):
    body = Body((Completion(tuple(turns), Finish.STOP),) * 8)
    swarm = talking(STARTER, most)
    if len(turns) <= most:
        assert decode_body(encode_body(body), swarm) == body
    else:
        assert layer_of(decode_body, encode_body(body), swarm) is Layer.BODY


def test_the_limit_of_a_completion_holds_for_all_its_turns_together(manifest):
    body = Body((Completion(("a" * 512, "\u00e9" * 256), Finish.STOP),) * 8)
    longer = Body((Completion(("a" * 513, "\u00e9" * 256), Finish.STOP),) * 8)
    swarm = talking(manifest, 2)
    assert decode_body(encode_body(body), swarm) == body
    assert layer_of(decode_body, encode_body(longer), swarm) is Layer.BODY


def test_a_message_opens_to_a_rollout(author, manifest):
    rollout = open_message(author.message(epoch=4, counter=9), manifest)
    assert (rollout.header.epoch, rollout.header.counter, len(rollout.bodies)) == (4, 9, 1)


def test_a_body_may_be_left_out(author, manifest):
    body = encode_body(author.body())
    envelope = author.envelope(author.header([body, body]))
    rollout = open_message(encode_message(envelope, (None, body)), manifest)
    assert rollout.bodies == (None, body)


def test_a_swapped_body_is_refused(author, manifest):
    body, other = encode_body(author.body("a")), encode_body(author.body("b"))
    envelope = author.envelope(author.header([body]))
    assert layer_of(open_message, encode_message(envelope, (other,)), manifest) is Layer.BODY


def test_one_body_too_few_is_refused(author, manifest):
    body = encode_body(author.body())
    envelope = author.envelope(author.header([body, body]))
    assert layer_of(open_message, encode_message(envelope, (body,)), manifest) is Layer.BODY


FRAMES = {
    "a map": {"envelope": b""},
    "three elements": [b"", [], 1],
    "an envelope that is text": ["", []],
    "bodies that are a byte string": [b"", b""],
    "a body that is text": [b"", ["x"]],
    "seventeen bodies": [b"", [b"x"] * 17],
}


@pytest.mark.parametrize("value", FRAMES.values(), ids=FRAMES.keys())
def test_a_message_is_refused_that_is(value, manifest):
    assert layer_of(decode_message, encode(value), manifest) is Layer.FRAME


def test_a_message_over_the_swarms_limit_is_refused_by_size(author, manifest):
    small = replace(manifest, max_message_bytes=2_000)
    assert layer_of(decode_message, encode_message(b"", (bytes(2_000),)), small) is Layer.SIZE


def test_the_header_of_a_full_round_fits_the_envelope_limit(author, manifest):
    wide = replace(manifest, completions=16)
    writer = replace(author, manifest=wide)
    header = replace(writer.header([b"body"] * 16), epoch=2**32, counter=599)
    assert parse_envelope(writer.envelope(header), network_id=wide.network_id).payload == encode_header(header)
    assert hashlib.sha256(b"body").digest() == header.groups[0].body
