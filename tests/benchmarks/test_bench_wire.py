"""What the wire costs: time beside a bare signature check and bare hashing, bytes beside other ways to write the same.

Every figure is a ratio of things timed in turn, in one run.
"""

import contextlib
import hashlib
import json
import statistics
import time
from dataclasses import replace
from functools import partial

import cbor2
import msgpack
import pytest
import trio
from nacl.signing import VerifyKey

from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.client import Learner
from sapo_node.tasks import build_task, prepare
from sapo_protocol import (
    Body,
    Completion,
    Finish,
    RemoteError,
    assign,
    decode_message,
    encode_body,
    encode_message,
    open_message,
    parse_envelope,
)
from sapo_protocol.cbor import decode, encode

pytestmark = pytest.mark.bench


def in_turn(*functions, repeat=300, inner=10):
    """Median seconds of each function, all timed alternately so that the machine's mood falls on all alike."""
    times = [[] for _ in functions]
    for _ in range(repeat):
        for function, record in zip(functions, times, strict=True):
            before = time.perf_counter()
            for _ in range(inner):
                function()
            record.append((time.perf_counter() - before) / inner)
    return [statistics.median(record) for record in times]


def message_of(author, manifest, size):
    """A message of four groups (one in 2 KB) and about `size` bytes."""
    groups = 4 if size > 2_000 else 1
    text = "x" * max(1, (size - 300) // groups // manifest.completions - 42)
    bodies = [encode_body(author.body(text)) for _ in range(groups)]
    return encode_message(author.envelope(author.header(bodies)), tuple(bodies)), bodies


@pytest.fixture
def wide(manifest):
    return replace(manifest, max_message_bytes=1_000_000, max_completion_bytes=65_536)


@pytest.mark.parametrize("size", [2_000, 8_000, 64_000, 256_000])
def test_accepting_a_message_against_one_bare_signature_check_and_hashing(author, wide, size):
    author = replace(author, manifest=wide)
    message, bodies = message_of(author, wide, size)
    sealed = parse_envelope(decode_message(message, wide)[0], network_id=wide.network_id)
    opening, bare, hashing = in_turn(
        partial(open_message, message, wide),
        partial(VerifyKey(sealed.issuer).verify, sealed.signed, sealed.signature),
        lambda: [hashlib.sha256(data).digest() for data in (sealed.signed, *bodies)],
    )
    print(
        f"\naccept {len(message):,} bytes / (bare libsodium verify + hashing): {opening / (bare + hashing):.2f}x "
        f"({opening * 1e6:.0f} us / {bare * 1e6:.0f} + {hashing * 1e6:.0f} us)"
    )


def malformed(author, wide, message):
    """One message for each layer that refuses, as late in that layer as its fault can be."""
    envelope, bodies = decode_message(message, wide)
    late_body = bytes([*bodies[-1][:-1], bodies[-1][-1] ^ 1])
    nested = {"x": {"deep": [[[[[[[0]]]]]]]}}
    header = decode(parse_envelope(envelope, network_id=wide.network_id).payload, limit=2_000)
    unsigned_header = encode(header | nested) if len(encode(header | nested)) < 1_900 else encode({**header, "y": 1})
    return {
        "size": message + bytes(wide.max_message_bytes),
        "frame": message + b"\0",
        "envelope": encode_message(envelope[:-1], bodies),
        "signature": encode_message(bytes([*envelope[:-1], envelope[-1] ^ 1]), bodies),
        "header": encode_message(author.envelope_of(unsigned_header), bodies),
        "body": encode_message(envelope, (*bodies[:-1], late_body)),
    }


@pytest.mark.parametrize("size", [2_000, 8_000, 64_000, 256_000])
def test_refusing_a_message_against_accepting_it(author, wide, size):
    author = replace(author, manifest=wide)
    message, _ = message_of(author, wide, size)
    refused = malformed(author, wide, message)

    def refuse(data):
        with contextlib.suppress(RemoteError):
            open_message(data, wide)

    accept, *costs = in_turn(
        partial(open_message, message, wide), *[partial(refuse, data) for data in refused.values()], repeat=150
    )
    shares = ", ".join(f"{layer} {cost / accept:.2f}x" for layer, cost in zip(refused, costs, strict=True))
    print(f"\nrefuse / accept, {len(message):,} bytes, by layer: {shares}")


@pytest.mark.parametrize("items", [4_000])
def test_refusing_the_costliest_item_against_accepting_one_of_its_size(author, wide, items):
    """A body is decoded only when it is wanted; the worst that a signed one can hold."""
    author = replace(author, manifest=wide)
    good = encode_body(author.body("x" * (items // wide.completions)))
    many = b"\x99" + items.to_bytes(2, "big") + b"\0" * items
    scan, take, library = in_turn(
        partial(_refused, many + b"\0"), partial(decode, good, limit=100_000), partial(cbor2.loads, many), repeat=60
    )
    print(
        f"\nrefuse {items} items in {len(many):,} bytes / decode a body of {len(good):,} bytes: {scan / take:.1f}x "
        f"({scan * 1e6:.0f} us); cbor2 alone takes {library * 1e6:.0f} us for the same items"
    )


def _refused(data):
    with contextlib.suppress(RemoteError):
        decode(data, limit=100_000)


async def test_bytes_on_the_wire_against_other_ways_to_write_the_same_round(tmp_path, author, manifest):
    """A round of four groups as the seed policy writes it."""
    tasks = [assign(manifest, author.issuer, 0, 0, k) for k in range(4)]
    items = [build_task(task.spec.dataset, task.spec.config, task.seed) for task in tasks]
    learner = Learner(LearnerOptions(checkpoints=str(tmp_path)))
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        prompts = [item.prompt for item in items]
        groups = await learner.generate(
            [Prompt(each) for each in prompts], completions=manifest.completions, max_tokens=80, seed=1
        )
        nursery.cancel_scope.cancel()
    texts = [[each.text for each in group] for group in groups]
    bodies = [encode_body(Body(tuple(Completion((each.text,), Finish.STOP) for each in group))) for group in groups]
    ours = len(encode_message(author.envelope(author.header(bodies)), tuple(bodies)))
    paper = [
        {
            "question": item.prompt,
            "answer": item.answer,
            "metadata": prepare(task.spec.dataset, task.spec.config)[task.seed]["metadata"],
            "completions": completions,
        }
        for item, task, completions in zip(items, tasks, texts, strict=True)
    ]
    same = [{"completions": [{"text": text, "finish": "stop"} for text in group]} for group in texts]
    content = sum(len(text.encode()) for group in texts for text in group)
    sizes = {
        "the completions alone": content,
        "the paper's form (question, answer, metadata, completions) as JSON, unsigned": len(json.dumps(paper)),
        "the same in MessagePack, unsigned": len(msgpack.packb(paper, default=str)),
        "our bodies as JSON, unsigned": len(json.dumps(same)),
        "our bodies as MessagePack, unsigned": len(msgpack.packb(same)),
    }
    print(f"\na signed round of four groups takes {ours:,} bytes on the wire")
    for what, size in sizes.items():
        print(f"  / {what}: {ours / size:.2f}x ({size:,} bytes)")
