"""What fuzzing found, one test each."""

import json
import math
import os

import pytest
from fuzz_checkpoint import remove_newest, resume, trainer, write_newest
from harness import MANIFEST

from sapo_node.processes.frames import write_frame
from sapo_node.verification.sandbox.requests import (
    MAX_BATCH,
    MAX_EXAMPLE,
    MAX_PROMPT,
    MAX_REPLY,
    MalformedReplyError,
    ScoreRequest,
    decode_results,
    read_results,
)
from sapo_protocol import LocalError, RemoteError, decode_body, decode_manifest, parse_manifest, render_manifest
from sapo_protocol.cbor import decode, encode
from sapo_protocol.limits import MAX_MANIFEST_BYTES

EMPTY = ScoreRequest("chain_sum", {}, 1, ())


def test_a_question_that_is_no_unicode_text_is_malformed():
    with pytest.raises(MalformedReplyError):
        decode_results([["\ud800", "0" * 64, "", ""]], [EMPTY])


def test_what_the_zygote_takes_from_a_child_fits_into_its_reply():
    longest = ["\U0001f600" * MAX_PROMPT, "0" * 64, "", "\U0001f600" * MAX_EXAMPLE]
    line = json.dumps(longest, ensure_ascii=False).encode() + b"\n"
    results = list(read_results([line] * MAX_BATCH, [EMPTY] * MAX_BATCH))
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        write_frame(null, {"results": results}, MAX_REPLY)
    finally:
        os.close(null)


def test_a_refusal_of_a_body_does_not_quote_all_its_keys():
    with pytest.raises(RemoteError) as refusal:
        decode_body(encode({"k" * 100_000: 1}), MANIFEST)
    assert len(str(refusal.value)) < 400


def test_a_manifest_of_version_true_is_refused():
    table = dict(decode(MANIFEST.encoded, limit=MAX_MANIFEST_BYTES))
    with pytest.raises(RemoteError):
        decode_manifest(encode({**table, "version": True}))


@pytest.mark.parametrize("extension", [{"two words": 1}, {"": 1}, {"\U0001f600": 1}], ids=str)
def test_a_manifest_that_is_taken_can_be_rendered_to_the_same_network_id(extension):
    table = dict(decode(MANIFEST.encoded, limit=MAX_MANIFEST_BYTES))
    manifest = decode_manifest(encode({**table, "x": extension}))
    assert parse_manifest(render_manifest(manifest), "the same").network_id == manifest.network_id


def test_a_manifest_that_toml_cannot_say_is_not_rendered():
    table = dict(decode(MANIFEST.encoded, limit=MAX_MANIFEST_BYTES))
    with pytest.raises(LocalError, match="byte strings"):
        render_manifest(decode_manifest(encode({**table, "x": {"key": b"bytes"}})))


def renamed(file: int, entry: int, name: bytes) -> bytes:
    """The input that gives an entry of a checkpoint's weights (file 0) or optimizer (file 1) another name."""
    return bytes([4, file, entry, 1, len(name)]) + name


SHAPES = {
    "bias": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]},
    "weight": {"dtype": "F32", "shape": [0], "data_offsets": [24, 24]},
}
ADAM = {
    f"{name}/{part}": {"dtype": "F32", "shape": [] if part == "step" else shape}
    for name, shape in (("bias", [2]), ("weight", [2, 2]))
    for part in ("exp_avg", "exp_avg_sq", "step")
}


def shifted() -> bytes:
    """The optimizer's description with the random state put first, so that its bytes are others."""
    described = {"random": {"dtype": "U8", "shape": [5056], "data_offsets": [0, 5056]}}
    end = 5056
    for name, entry in ADAM.items():
        start, end = end, end + 4 * math.prod(entry["shape"])
        described[name] = {**entry, "data_offsets": [start, end]}
    return bytes([2, 1]) + json.dumps(described).encode()


CHECKPOINTS = {
    "meta data nested too deep": b"\0" + b"[" * 100_000,
    "weights that are no tensors": bytes([1, 0]) + bytes(8),
    "weights of another shape": bytes([2, 0]) + json.dumps(SHAPES).encode(),
    "a weight of another name": renamed(0, 0, b"other"),
    "no random state": renamed(1, 3, b"other"),
    "a random state that is no bytes": bytes([4, 1, 3, 2, 6]),
    "a step count of another name": renamed(1, 2, b"other"),
    "an optimizer's entry without a slash": renamed(1, 0, b"bias"),
    "an average of another name": renamed(1, 1, b"other"),
}


def test_a_checkpoint_with_a_random_state_that_no_generator_was_in_is_passed_over():
    restore_and_expect_the_one_before(shifted())


@pytest.mark.parametrize("program", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_whose_checksums_hold_and_whose_contents_do_not_is_passed_over(program):
    """As one may be that another version of a library wrote."""
    restore_and_expect_the_one_before(program)


def restore_and_expect_the_one_before(program):
    write_newest(program)
    try:
        resume(trainer())
        assert trainer().step == 1
    finally:
        remove_newest()
