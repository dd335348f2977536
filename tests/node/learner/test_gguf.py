"""GGUF files: those of known models become the same model, and all others are one ModelError before they do harm."""

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf import RopeScalingType

from sapo_node.app.config import Config
from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.model_name import is_hub_name
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import conversion
from sapo_node.learner.conversion import convert
from sapo_node.learner.folder import ModelError, model_folder
from sapo_node.learner.gguf.folder import write_folder
from sapo_node.learner.gguf.reader import MAX_TENSORS, GgufError, read_header
from sapo_node.learner.gguf.tokenizer import make_tokenizer
from sapo_node.learner.model import load
from sapo_node.learner.probe import require_readable
from tiny_gguf import FAMILIES, TEXTS, write_gguf, write_source

torch.set_num_threads(1)

TOKENS = torch.arange(0, 240, 7)[None]
WIDE = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
"""Rows of whole blocks of 32 numbers, as quantised formats have them."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return {family: write_source(tmp_path_factory.mktemp(family), family) for family in FAMILIES}


@pytest.fixture(scope="module")
def good(sources, tmp_path_factory):
    """A file that nothing is wrong with."""
    return write_gguf(tmp_path_factory.mktemp("good") / "good.gguf", sources["llama"], "llama")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sapo-node" / "models"


def options(model):
    return LearnerOptions(checkpoints="", device="cpu", model=str(model))


def policy_of(file):
    convert(file, lambda _: None)
    return load(options(file))


def logits(model):
    with torch.no_grad():
        return load(options(model)).model(TOKENS).logits


def converted(path, source, family, folder, **how):
    folder.mkdir()
    write_folder(write_gguf(path, source, family, **how), folder)
    return folder


# The same model.


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_in_float32_becomes_exactly_the_model_that_it_was_made_from(sources, tmp_path, family):
    folder = converted(tmp_path / "m.gguf", sources[family], family, tmp_path / "m")
    assert torch.equal(logits(folder), logits(sources[family]))


@pytest.mark.parametrize(("kind", "apart"), [("F16", 0.01), ("BF16", 0.1), ("Q8_0", 0.1), ("Q4_1", 1.0)])
def test_a_file_in_fewer_bits_becomes_the_model_within_its_rounding(tmp_path, kind, apart):
    source = write_source(tmp_path / "s", "llama", **WIDE)
    folder = converted(tmp_path / "m.gguf", source, "llama", tmp_path / "m", kind=kind)
    whole, rounded = logits(source), logits(folder)
    assert 0 < (whole - rounded).abs().mean() < apart * whole.std()


def test_the_slowed_rotation_of_llama_3_becomes_the_settings_that_it_came_from(tmp_path):
    settings = {"rope_type": "llama3", "rope_theta": 500000.0, "original_max_position_embeddings": 8192}
    settings |= {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    source = write_source(tmp_path / "s", "llama", rope_parameters=settings, head_dim=32, max_position_embeddings=2**14)
    plain = 1 / 500000.0 ** (np.arange(0, 32, 2) / 32)
    slowed = load(options(source)).model.model.rotary_emb.inv_freq.numpy()
    assert 0 < (slowed != plain.astype(np.float32)).sum() < 16
    path = write_gguf(tmp_path / "m.gguf", source, "llama", change=with_factors(plain / slowed))
    (tmp_path / "m").mkdir()
    write_folder(path, tmp_path / "m")
    assert torch.equal(logits(tmp_path / "m"), logits(source))


def test_the_node_uses_a_file_like_a_folder(good, sources, cache):
    policy = policy_of(good)
    assert torch.equal(logits(good), logits(sources["llama"]))
    prompt = policy.decode(policy.prompt_tokens(Prompt("What is 2 + 2?")))
    assert prompt.startswith("[system] ")
    assert prompt.endswith("[user] What is 2 + 2?\n[assistant] ")
    require_readable(options(good))


@pytest.fixture(scope="module")
def both(good, sources, tmp_path_factory):
    """The policy of a file, and that of the folder that the file was made from."""
    folder = tmp_path_factory.mktemp("both")
    write_folder(good, folder)
    return load(options(folder)), load(options(sources["llama"]))


@pytest.mark.parametrize("text", [*TEXTS[:3], "<eos>", "the <eos> it's", "é中🙂\n\n  12"])
def test_a_text_becomes_the_same_tokens(both, text):
    ours, theirs = both
    assert ours.encode_foreign(text) == theirs.encode_foreign(text)
    assert ours.tokenizer(text)["input_ids"] == theirs.tokenizer(text)["input_ids"]


def test_the_special_tokens_are_the_same(both):
    ours, theirs = both
    assert ours.specials == theirs.specials
    assert ours.ends[0] == theirs.ends[0]


SPLITS = {
    "gpt-2": ["it", "'s", "Ġ1212", "ĊĊ", "Ġa"],
    "smollm": ["it", "'s", "Ġ", "1", "2", "1", "2", "ĊĊ", "Ġa"],
    "llama-bpe": ["it", "'s", "Ġ", "121", "2", "ĊĊ", "Ġa"],
    "qwen2": ["it", "'s", "Ġ", "1", "2", "1", "2", "ĊĊ", "Ġa"],
}


@pytest.mark.parametrize(("pre", "parts"), SPLITS.items())
def test_a_text_is_split_as_the_file_says(sources, tmp_path, pre, parts):
    tokenizer, _ = make_tokenizer(read_header(write_gguf(tmp_path / "m.gguf", sources["llama"], "llama", pre=pre)))
    assert [part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str("it's 1212\n\n a")] == parts


def test_a_first_token_is_added_where_the_file_asks_for_one(sources, tmp_path):
    def first(writer):
        writer.add_bos_token_id(256)
        writer.add_add_bos_token(True)

    path = write_gguf(tmp_path / "m.gguf", sources["llama"], "llama", change=first)
    tokenizer, settings = make_tokenizer(read_header(path))
    assert settings["bos_token"] == tokenizer.id_to_token(256)
    assert tokenizer.encode("a").ids[0] == 256
    assert tokenizer.encode("a", add_special_tokens=False).ids[0] != 256


@pytest.mark.parametrize(
    ("pre", "asked", "added"), [("llama-bpe", None, True), ("llama-bpe", False, False), ("gpt-2", None, False)]
)
def test_a_file_that_does_not_ask_gets_a_first_token_by_the_split_of_llama_3(sources, tmp_path, pre, asked, added):
    def first(writer):
        writer.add_bos_token_id(256)
        if asked is not None:
            writer.add_add_bos_token(asked)

    path = write_gguf(tmp_path / "m.gguf", sources["llama"], "llama", change=first, pre=pre)
    tokenizer, _ = make_tokenizer(read_header(path))
    assert (tokenizer.encode("a").ids[0] == 256) is added


# The cache.


def test_a_file_is_converted_once(good, cache, tmp_path):
    told = []
    convert(good, told.append)
    [folder] = cache.iterdir()
    assert model_folder(str(good)) == folder
    assert f"converting {good} into {folder}" in told[0]
    elsewhere = shutil.copy(good, tmp_path / "other.gguf")
    convert(tmp_path / "other.gguf", told.append)
    assert len(told) == 1
    assert model_folder(str(elsewhere)) == folder


def test_a_changed_file_is_another_model(good, cache, sources, tmp_path):
    path = tmp_path / "m.gguf"
    shutil.copy(good, path)
    convert(path, lambda _: None)
    write_gguf(path, sources["qwen2"], "qwen2")
    with pytest.raises(
        ModelError, match=r"has not been converted yet; `sapo-node start --model .*m\.gguf` converts it"
    ):
        model_folder(str(path))


def test_a_file_that_cannot_be_converted_leaves_nothing(good, cache, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(good.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cut.gguf cannot be converted: the tensor .* ends beyond the end") as caught:
        convert(path, lambda _: None)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_without_the_package_the_extra_is_named(good, cache, monkeypatch):
    monkeypatch.setattr(conversion, "_NEEDED", ("a_package_that_nobody_has",))
    with pytest.raises(ModelError, match=r"needs the package a_package_that_nobody_has.*\[gguf\]"):
        convert(good, lambda _: None)


def test_a_missing_file_and_a_folder_of_that_name_are_told_apart(tmp_path, cache):
    with pytest.raises(ModelError, match=r"there is no file .*none\.gguf"):
        model_folder(str(tmp_path / "none.gguf"))
    (tmp_path / "folder.gguf").mkdir()
    assert model_folder(str(tmp_path / "folder.gguf")) == tmp_path / "folder.gguf"


def test_peers_see_the_name_of_the_file_alone():
    assert not is_hub_name("models/tiny.gguf")
    assert Config(model="models/tiny.gguf").model_label == "tiny.gguf"


def test_no_module_is_imported_from_the_folder_in_which_the_user_stands(good, cache, tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit('foreign')")
    monkeypatch.chdir(tmp_path)
    convert(good, lambda _: None)


# What is no such model.


def change_of(**changes):
    """A file in which entries of metadata have other values."""

    def change(writer):
        for key, value in changes.items():
            for entries in writer.kv_data:
                if key in entries:
                    entries[key] = replace(entries[key], value=value)

    return change


def without(name):
    return lambda writer: writer.tensors[0].pop(name)


def with_tensor(name):
    return lambda writer: writer.add_tensor(name, np.zeros((2, 2), np.float32))


def with_factors(factors):
    return lambda writer: writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))


UNFIT = {
    "an unknown architecture": (change_of(**{"general.architecture": "mamba"}), "architecture is 'mamba'"),
    "an unknown split": (change_of(**{"tokenizer.ggml.pre": "nonesuch"}), "with the split 'nonesuch'"),
    "an unknown tokenizer": (change_of(**{"tokenizer.ggml.model": "bert"}), "of the kind 'bert'"),
    "a missing tensor": (without("blk.1.ffn_up.weight"), "'blk.1.ffn_up.weight' is missing"),
    "a tensor more": (with_tensor("blk.0.ssm_in.weight"), "'blk.0.ssm_in.weight', which no LlamaForCausalLM has"),
    "a scaled rotation": (
        lambda writer: writer.add_rope_scaling_type(RopeScalingType.YARN),
        "scales its rotary embedding",
    ),
    "a slowed rotation of its own": (with_factors([1, 1, 3, 4]), "in another way than Llama 3"),
    "a rotation that is no number": (with_factors([1, 1, 1, np.nan]), "in another way than Llama 3"),
    "factors of another head": (with_factors([1, 1]), "is not 4 numbers"),
    "experts": (lambda writer: writer.add_expert_count(4), "mixture of experts"),
    "a partial rotation": (lambda writer: writer.add_rope_dimension_count(4), "rotates a part of each head"),
    "a thousand million layers": (change_of(**{"llama.block_count": 10**9}), "claims 1000000000 layers"),
    "no heads": (change_of(**{"llama.attention.head_count": 0}), "claims 0 heads"),
    "five heads": (change_of(**{"llama.attention.head_count": 5}), "not pairs of rows for 5 heads"),
    "an end that is no token": (change_of(**{"tokenizer.ggml.eos_token_id": 999}), "eos token is 999"),
    "two equal tokens": (change_of(**{"tokenizer.ggml.tokens": ["a"] * 281}), "281 tokens, 1 different ones"),
    "too few types": (change_of(**{"tokenizer.ggml.token_type": [1]}), "and 1 types of tokens"),
    "merges of nothing": (change_of(**{"tokenizer.ggml.merges": ["€ €"]}), "merges do not fit its tokens"),
    "tokens that are numbers": (lambda w: w.kv_data[0].update(other_tokens(w)), "holds something that is no text"),
}


def other_tokens(writer):
    value = writer.kv_data[0]["tokenizer.ggml.token_type"]
    return {"tokenizer.ggml.tokens": value}


@pytest.mark.parametrize(("change", "message"), UNFIT.values(), ids=UNFIT)
def test_a_file_of_another_kind_is_refused_by_name(sources, tmp_path, change, message):
    with pytest.raises(GgufError, match=message):
        converted(tmp_path / "m.gguf", sources["llama"], "llama", tmp_path / "m", change=change)


def head(tensors=0, fields=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields)


def text(value):
    return struct.pack("<Q", len(value)) + value


def field(kind, content):
    return head(fields=1) + text(b"a") + struct.pack("<I", kind) + content


def tensor(shape=(32,), kind=0, offset=0, tensors=1):
    described = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return head(tensors=tensors) + (text(b"t") + described) * tensors + bytes(256)


BROKEN = {
    "nothing": (b"", "ends too early"),
    "no GGUF": (b"PK\x03\x04" + bytes(60), "does not begin with GGUF"),
    "big-endian": (head(version=0x0300_0000), "version 50331648"),
    "a half head": (head()[:20], "ends too early"),
    "absurdly many tensors": (head(tensors=2**63), f"{2**63} tensors, over the limit of {MAX_TENSORS}"),
    "absurdly many fields": (head(fields=2**63), "entries of metadata, over the limit"),
    "more tensors than there are": (head(tensors=100), "ends too early"),
    "a list of 2**60 bytes": (field(9, struct.pack("<IQ", 0, 2**60)), "items in a list, over the limit"),
    "a list that is longer than the file": (field(9, struct.pack("<IQ", 0, 2**19)), "ends too early"),
    "a list of lists": (field(9, struct.pack("<IQ", 9, 1)), "has type 9"),
    "a text of 2**63 bytes": (field(8, struct.pack("<Q", 2**63)), "ends too early"),
    "a text that is not UTF-8": (field(8, text(b"\xff")), "not UTF-8"),
    "a value of no type": (field(77, b""), "has type 77"),
    "a tensor of 64 GB": (tensor(shape=(2**34,)), "of 68719476736 bytes ends beyond"),
    "a tensor of 2**240 numbers": (tensor(shape=(2**60,) * 4), "ends beyond the end"),
    "a tensor far away": (tensor(offset=2**63), "ends beyond the end"),
    "a tensor of a hundred dimensions": (tensor(shape=(1,) * 100), "dimensions of a tensor, over the limit"),
    "a tensor of no dimension": (tensor(shape=()), "no whole blocks"),
    "a tensor in no format": (tensor(kind=4096), "has format 4096"),
    "a tensor of half a block": (tensor(shape=(16,), kind=8), "no whole blocks of Q8_0"),
    "two tensors of one name": (tensor(tensors=2), "have the same name"),
    "no metadata": (tensor(), "general.architecture is missing"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_before_anything_of_its_size_is_made(tmp_path, content, message):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(GgufError, match=message):
        write_folder(tmp_path / "m.gguf", tmp_path)


def test_a_pipe_is_no_file(tmp_path, cache):
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="is a pipe or a device"):
        convert(tmp_path / "m.gguf", lambda _: None)


def test_a_file_beyond_the_limit_is_not_read(tmp_path, cache):
    with (tmp_path / "m.gguf").open("wb") as file:
        file.truncate(65 * 2**30)
    with pytest.raises(ModelError, match="over the limit"):
        convert(tmp_path / "m.gguf", lambda _: None)


UNDER_LIMITS = """
import os, sys
from pathlib import Path
from sapo_node.learner.gguf import __main__ as program
for name in sys.argv[3:]:
    setattr(program, name, 0)
sys.exit(program.main(Path(sys.argv[1]), Path(sys.argv[2]), os.getppid()))
"""


@pytest.mark.parametrize(("limits", "ends"), [([], False), (["MEMORY"], True), (["GROWTH", "SETTINGS_BYTES"], True)])
def test_the_process_that_converts_ends_at_its_limits(good, tmp_path, limits, ends):
    command = [sys.executable, "-c", UNDER_LIMITS, str(good), str(tmp_path), *limits]
    assert bool(subprocess.run(command, capture_output=True, check=False).returncode) is ends
