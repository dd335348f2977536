"""A checkpoint with anything in its files: it is used, or the one before it, or an error of ours says why not."""

import functools
import hashlib
import json
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness import Source
from torch import Tensor

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner import checkpoint
from sapo_node.learner.checkpoint import CheckpointError
from sapo_node.learner.model import Policy
from sapo_node.learner.trainer import Trainer

FILES = ("weights.safetensors", "optimizer.safetensors")
GOOD, NEWEST = "step-00000001", "step-00000002"
CLAIMS = (0, 1, 2, 3, 8, 16, 5056, 2**31, 2**40, 2**63 - 1, 2**64 - 1, -1, 0.5, True, None, "1", [2], {})
TYPES = ("F32", "F64", "F16", "BF16", "U8", "I64", "BOOL", "F4", "", None)
_TEMPORARY = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


@functools.cache
def trainer() -> Trainer:
    """Of a model with six weights, one step on, so that its optimizer holds something."""
    torch.set_num_threads(1)
    policy = Policy(
        model=torch.nn.Linear(2, 2),
        tokenizer=None,
        device=torch.device("cpu"),
        name="linear",
        fingerprint="f" * 64,
        ends=(),
        specials=frozenset(),
        pad=0,
        vocabulary=2,
        context=2,
    )
    made = Trainer(policy, LearnerOptions(checkpoints="", groups=1, completions=4))
    train_on(made)
    made.step = 1
    return made


@functools.cache
def root() -> Path:
    """A folder with a good checkpoint, gone when the process ends."""
    folder = Path(_TEMPORARY.name)
    checkpoint.save(trainer(), folder)
    return folder


@functools.cache
def good() -> dict[str, bytes]:
    root()
    return {path.name: path.read_bytes() for path in (root() / GOOD).iterdir()}


@functools.cache
def weights() -> list[Tensor]:
    root()
    return [value.detach().clone() for value in trainer().parameters]


def fuzz(data: bytes) -> None:
    write_newest(data)
    try:
        resume(trainer())
    finally:
        remove_newest()


def write_newest(data: bytes) -> None:
    newest = root() / NEWEST
    newest.mkdir()
    for name, content in checkpoint_files(Source(data)).items():
        (newest / name).write_bytes(content)


def remove_newest() -> None:
    """Also where it was set aside."""
    for folder in root().glob(f"*{NEWEST}"):
        shutil.rmtree(folder)


def resume(held: Trainer) -> None:
    expected = weights()
    with torch.no_grad():
        for value in held.parameters:
            value.zero_()
    held.step = 0
    try:
        report = checkpoint.restore(held, root())
    except CheckpointError:
        named = json.loads((root() / NEWEST / "meta.json").read_bytes())["model"]
        assert named != held.policy.fingerprint
        assert held.step == 0
        return
    assert held.step in {1, 2}
    assert (report is None) == (held.step == 2)
    if held.step == 2:
        meta = json.loads((root() / NEWEST / "meta.json").read_bytes())
        assert meta["step"] == 2
        assert all(meta["sha256"][name] == digest((root() / NEWEST / name).read_bytes()) for name in FILES)
    else:
        assert (root() / f"corrupt-{NEWEST}").is_dir()
        assert all(torch.equal(a, b) for a, b in zip(held.parameters, expected, strict=True))
    train_on(held)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def train_on(held: Trainer) -> None:
    """What was taken can be trained on."""
    for value in held.parameters:
        value.grad = torch.ones_like(value)
    held.optimizer.step()


def checkpoint_files(source: Source) -> dict[str, bytes]:
    """A newest checkpoint of which one file is the input's; its checksums are right unless they are the input's too."""
    files = dict(good())
    style = source.below(6)
    if style == 0:
        return {**files, "meta.json": source.rest()}
    name = FILES[source.below(len(FILES))]
    if style == 1:
        files[name] = source.rest()
    elif style == 2:
        files[name] = with_header(files[name], source.rest())
    elif style == 3:
        files[name] = patched(files[name], source)
    else:
        files[name] = with_header(files[name], json.dumps(described(header(files[name]), source)).encode())
    digests = {each: digest(files[each]) for each in FILES}
    meta = {"step": 2, "model": trainer().policy.fingerprint, "sha256": digests}
    if style == 5:
        meta[sorted(meta)[source.below(3)]] = CLAIMS[source.below(len(CLAIMS))]
    return {**files, "meta.json": json.dumps(meta).encode()}


def header(tensors: bytes) -> dict[str, Any]:
    """What a safetensors file says of its tensors."""
    [size] = struct.unpack_from("<Q", tensors)
    return json.loads(tensors[8 : 8 + size])


def described(tensors: dict[str, Any], source: Source) -> dict[str, Any]:
    """Another description of the same data: a few entries left out, renamed, or of other types and sizes."""
    while source:
        name = sorted(tensors)[source.below(len(tensors))] if tensors else ""
        entry = tensors.pop(name, {})
        change = source.below(6)
        if change == 1:
            name = source.string().decode("utf-8", "replace")
        elif change == 2:
            entry = {**entry, "dtype": TYPES[source.below(len(TYPES))]}
        elif change == 3:
            entry = {**entry, "shape": [CLAIMS[source.below(len(CLAIMS))] for _ in range(source.below(4))]}
        elif change == 4:
            entry = {**entry, "data_offsets": [CLAIMS[source.below(len(CLAIMS))] for _ in range(source.below(4))]}
        elif change == 5:
            tensors[name + "/" + source.string().decode("utf-8", "replace")] = entry
        if change:
            tensors[name] = entry
    return tensors


def with_header(tensors: bytes, text: bytes) -> bytes:
    """The same data under another description."""
    [size] = struct.unpack_from("<Q", tensors)
    return struct.pack("<Q", len(text)) + text + tensors[8 + size :]


def patched(tensors: bytes, source: Source) -> bytes:
    """A few bytes replaced, and the end cut off."""
    changed = bytearray(tensors)
    del changed[len(changed) - source.below(1024) :]
    while source and changed:
        changed[source.number(2) % len(changed)] = source.number()
    return bytes(changed)


def seeds() -> Iterator[bytes]:
    meta = json.loads(good()["meta.json"])
    yield b"\0" + json.dumps({**meta, "step": 2}).encode()
    for change in ({"model": "0" * 64}, {"sha256": dict.fromkeys(FILES, "0" * 64)}, {"sha256": {}}, {"step": 3}):
        yield b"\0" + json.dumps({**meta, "step": 2, **change}).encode()
    yield b"\0{"
    for index, name in enumerate(FILES):
        yield bytes([1, index]) + good()[name][:400]
        yield bytes([1, index]) + struct.pack("<Q", 2) + b"{}"
        yield bytes([2, index]) + json.dumps(header(good()[name])).encode()
        claim = {"random": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}
        yield bytes([2, index]) + json.dumps(claim).encode()
        yield bytes([3, index, 0, 0, 0, 9, 65])
        yield bytes([3, index, 0, 9])
        for change in range(6):
            yield bytes([4, index, 0, change, 2, 2, 2])
            yield bytes([5, index, change])
