"""Weights that are missing, or of other sizes than the settings of their folder describe, are one ModelError before a
weight is read.
"""

import json
import os
import re
import struct
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.export import export
from sapo_node.learner.export_client import ExportRequest
from sapo_node.learner.model import ModelError, load
from sapo_node.processes.limits import memory_at_most
from tiny_models import MIXTURE, write_model

torch.set_num_threads(1)

LARGE = (2**18, 1024)
"""The size of a weight of 0.5 GB in bfloat16, and of 1 GB in fp32."""
BYTES = {"F32": 4, "BF16": 2}


def sizes_in(folder):
    with safe_open(folder / "model.safetensors", "pt") as opened:
        return {name: ("F32", tuple(opened.get_slice(name).get_shape())) for name in opened.keys()}  # noqa: SIM118 - it is no dict


def write_sizes(folder, sizes):
    """Weights that are zero, and take no room on the disk."""
    header, end = {}, 0
    for name, (kind, shape) in sizes.items():
        begin, end = end, end + BYTES[kind] * prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(file.tell() + end)


def change(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def a_large_weight(folder):
    write_sizes(folder, {**sizes_in(folder), "model.embed_tokens.weight": ("BF16", LARGE)})


def large_experts(folder):
    large = {name: ("BF16", (2**16, 1024)) for name in sizes_in(folder) if "experts" in name}
    write_sizes(folder, sizes_in(folder) | large)


def large_settings(folder):
    change(folder, vocab_size=LARGE[0], hidden_size=LARGE[1])


def peak():
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def refused(use, folder):
    """Have a fork of this process, of bounded memory, use a folder: what it says, and the bytes that it took."""
    options = LearnerOptions(checkpoints="", model=str(folder), device="cpu", dtype="float32")
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        try:
            before = peak()
            with memory_at_most(2**32), pytest.raises(ModelError) as caught:
                load(options) if use == "load" else export(ExportRequest(options, f"{folder}-out", None))
            os.write(writes, json.dumps([str(caught.value), peak() - before]).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as said:
        return json.load(said)


@pytest.mark.parametrize(
    ("use", "family", "spoil"),
    [
        ("load", "llama", a_large_weight),
        ("load", "llama", large_settings),
        ("load", MIXTURE, large_experts),
        ("export", "llama", a_large_weight),
        ("export", MIXTURE, large_settings),
    ],
)
@pytest.mark.slow
def test_a_weight_of_another_size_than_described_is_refused_before_it_is_read(tmp_path, use, family, spoil):
    spoil(write_model(tmp_path, family))
    error, taken = refused(use, tmp_path)
    assert "and its config.json describes [" in error
    assert taken < 2**28


def test_weights_that_are_described_and_missing_are_not_made_where_they_do_not_fit(tmp_path):
    folder = write_model(tmp_path, "llama")
    write_sizes(folder, {"model.norm.weight": ("F32", (16,))})
    change(folder, vocab_size=2**31)
    error, taken = refused("load", folder)
    assert "free; give a smaller model" in error
    assert taken < 2**28


@pytest.mark.parametrize("family", ["llama", MIXTURE])
def test_weights_of_the_sizes_described_are_taken(tmp_path, family):
    folder = write_model(tmp_path, family)
    write_sizes(folder, sizes_in(folder))
    loaded(folder)


def without(folder, lost):
    """Write the weights again, but for those of which `lost` says so by their name."""
    kept = {name: value for name, value in load_file(folder / "model.safetensors").items() if not lost(name)}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def loaded(folder):
    return load(LearnerOptions(checkpoints="", model=str(folder), device="cpu"))


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3_next"])
def test_a_folder_that_lacks_the_weights_of_a_layer_is_refused_and_they_are_named(tmp_path, family):
    """transformers fills them at random: the node would train, and share, what no model wrote."""
    folder = write_model(tmp_path, family)
    without(folder, re.compile(r"(layers|h)\.1\.").search)
    with pytest.raises(ModelError, match=r"lacks weights .*: [\w.]+\.1\.[\w.]+, .* and \d+ more; copy all files"):
        loaded(folder)


def test_a_folder_that_lacks_only_the_head_is_refused(tmp_path):
    folder = write_model(tmp_path, "llama")
    without(folder, re.compile("lm_head").search)
    with pytest.raises(ModelError, match=r"describes: lm_head\.weight; copy"):
        loaded(folder)


def test_the_head_of_tied_embeddings_is_not_missing(tmp_path):
    folder = write_model(tmp_path, "qwen2")
    assert not any("lm_head" in name for name in sizes_in(folder))
    loaded(folder)


def test_weights_of_gpt2_without_the_prefix_of_their_names_are_taken(tmp_path):
    """As its first release has them."""
    folder = write_model(tmp_path, "gpt2")
    weights = load_file(folder / "model.safetensors")
    short = {name.removeprefix("transformer."): value for name, value in weights.items()}
    save_file(short, folder / "model.safetensors", {"format": "pt"})
    assert torch.equal(loaded(folder).model.transformer.h[1].ln_1.weight, short["h.1.ln_1.weight"])


def test_a_part_of_the_weights_that_is_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    folder = write_model(tmp_path, "llama")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "part.safetensors")
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "part.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    error, _ = refused("load", folder)
    assert "is a pipe or a device, not a file of a model" in error
