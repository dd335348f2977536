"""The header of a GGUF file: it is described within bounds, or one error of ours says why not."""

import contextlib
import functools
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Source, refusal_is_a_line

from sapo_node.learner.gguf.architecture import describe
from sapo_node.learner.gguf.reader import GgufError, read_header
from sapo_node.learner.gguf.tokenizer import make_tokenizer

_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
FILE = Path(_TEMPORARY.name) / "model.gguf"
LAYER = (*("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"), *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"))
NUMBERS = (0, 1, 2, 8, 2**31, 2**32 - 1)
FLOATS = (0.0, 1e-5, 1e4, -1.0, float("nan"), float("inf"))


def fuzz(data: bytes) -> None:
    FILE.write_bytes(built(Source(data)))
    with refusal_is_a_line(GgufError):
        header = read_header(FILE)
        size = FILE.stat().st_size
        assert all(0 <= each.offset <= each.offset + each.size <= size for each in header.tensors.values())
        config = describe(header).config
        assert 0 < config["num_hidden_layers"] <= 1_024
        with contextlib.suppress(GgufError):
            make_tokenizer(header)


def built(source: Source) -> bytes:
    """Bytes as they are; or a small file of which fields have other values, then perhaps bytes changed."""
    if source.number() & 1:
        return source.rest()
    changes = {source.below(len(fields())): (source.number(), source.below(6)) for _ in range(source.below(6))}
    parts = [_field(name, kind, value, changes.get(at)) for at, (name, kind, value) in enumerate(fields())]
    changed = bytearray(_head(len(parts)) + b"".join(parts) + _tensors())
    while source:
        changed[source.number(2) % len(changed)] ^= source.number()
    return bytes(changed)


@functools.cache
def fields() -> tuple[tuple[str, int, object], ...]:
    """Name, type and value of each entry of a Llama of one layer."""
    tokens = ["<eos>", *map(chr, range(97, 105)), "ab"]
    return (
        ("general.architecture", 8, "llama"),
        *((f"llama.{name}", 4, 8) for name in ("embedding_length", "feed_forward_length", "context_length")),
        *((f"llama.{name}", 4, 1) for name in ("block_count", "attention.head_count", "attention.head_count_kv")),
        ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5),
        ("llama.rope.freq_base", 6, 1e4),
        ("tokenizer.ggml.model", 8, "gpt2"),
        ("tokenizer.ggml.pre", 8, "gpt-2"),
        ("tokenizer.ggml.tokens", 9, tokens),
        ("tokenizer.ggml.token_type", 9, [3] + [1] * (len(tokens) - 1)),
        ("tokenizer.ggml.merges", 9, ["a b"]),
        ("tokenizer.ggml.eos_token_id", 4, 0),
    )


def _field(name: str, kind: int, value: object, change: tuple[int, int] | None) -> bytes:
    if change and change[0] % 2 and kind == 4:
        value = NUMBERS[change[1]]
    elif change and change[0] % 2 and kind == 6:
        value = FLOATS[change[1]]
    elif change:
        kind, value = ((4, 1), (6, 1.0), (8, "\x1b[31m"), (9, [1]), (9, ["a"] * 3), (8, "qwen2"))[change[1]]
    return _text(name) + struct.pack("<I", kind) + _value(kind, value)


def _value(kind: int, value: object) -> bytes:
    if isinstance(value, list):
        inner = 8 if isinstance(value[0], str) else 4
        return struct.pack("<IQ", inner, len(value)) + b"".join(_value(inner, each) for each in value)
    if isinstance(value, str):
        return _text(value)
    return struct.pack("<f" if kind == 6 else "<I", value)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _names() -> list[str]:
    return ["token_embd.weight", "output_norm.weight", *(f"blk.0.{part}.weight" for part in LAYER)]


def _head(count: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, len(_names()), count)


def _tensors() -> bytes:
    described = b"".join(_text(name) + struct.pack("<IQIQ", 1, 10, 0, 0) for name in _names())
    return described + bytes(128)


def seeds() -> Iterator[bytes]:
    yield b"\0\0"
    yield b"\1" + built(Source(b"\0\0"))
    for at, _ in enumerate(fields()):
        for choice in range(6):
            yield bytes([0, 1, at, 1, choice])
            yield bytes([0, 1, at, 0, choice])
