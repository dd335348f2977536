"""GGUF files: transformers reads them in a child process, and any other file is one ModelError and leaves nothing."""

import os
import shutil
import sys

import numpy as np
import pytest
import torch

from sapo_node.app.config import Config
from sapo_node.groups.messages import LearnerOptions, is_hub_name
from sapo_node.learner import from_gguf, gguf
from sapo_node.learner.folder import ModelError, model_folder
from sapo_node.learner.from_gguf import write_folder
from sapo_node.learner.gguf import convert
from sapo_node.learner.model import load
from sapo_protocol import LocalError
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


def policy(model):
    return load(LearnerOptions(checkpoints="", device="cpu", model=str(model)))


def logits(model):
    with torch.no_grad():
        return policy(model).model(TOKENS).logits


def converted(path, source, family, folder, **how):
    folder.mkdir()
    write_folder(write_gguf(path, source, family, **how), folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_in_float32_becomes_exactly_the_model_that_it_was_made_from(sources, tmp_path, family):
    folder = converted(tmp_path / "m.gguf", sources[family], family, tmp_path / "m")
    assert torch.equal(logits(folder), logits(sources[family]))


@pytest.mark.parametrize(("kind", "apart"), [("F16", 0.01), ("BF16", 0.1), ("Q4_1", 1.0)])
def test_a_file_in_fewer_bits_becomes_the_model_within_its_rounding(tmp_path, kind, apart):
    source = write_source(tmp_path / "s", "llama", **WIDE)
    folder = converted(tmp_path / "m.gguf", source, "llama", tmp_path / "m", kind=kind)
    whole, rounded = logits(source), logits(folder)
    assert 0 < (whole - rounded).abs().mean() < apart * whole.std()


def test_a_text_becomes_the_same_tokens_and_prompts_as_before(good, sources, tmp_path):
    write_folder(good, tmp_path)
    ours, theirs = policy(tmp_path), policy(sources["llama"])
    for text in [*TEXTS[:3], "<eos>", "the <eos> it's", "é中🙂\n\n  12"]:
        assert ours.encode_foreign(text) == theirs.encode_foreign(text)
        assert ours.tokenizer(text)["input_ids"] == theirs.tokenizer(text)["input_ids"]
    # The class of the tokenizer brings a special token of its own, beyond those of the model.
    assert ours.specials & set(range(ours.vocabulary)) == theirs.specials
    assert ours.encode_foreign("<|endoftext|>") == theirs.encode_foreign("<|endoftext|>")
    assert ours.ends[0] == theirs.ends[0]
    assert ours.tokenizer.chat_template == theirs.tokenizer.chat_template


def test_smollm_splits_the_spaces_before_a_digit_from_it(sources, tmp_path):
    folder = converted(tmp_path / "m.gguf", sources["llama"], "llama", tmp_path / "m", pre="smollm")
    split = policy(folder).tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("it's 12\n\n3")
    assert [part for part, _ in split] == ["it", "'s", "Ġ", "1", "2", "ĊĊ", "3"]


# The cache.


@pytest.mark.slow
def test_a_file_is_converted_once_wherever_the_user_stands(good, sources, cache, tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit('foreign')")
    monkeypatch.chdir(tmp_path)
    told = []
    convert(good, told.append)
    [folder] = cache.iterdir()
    assert model_folder(str(good)) == folder
    assert torch.equal(logits(good), logits(sources["llama"]))
    assert f"converting {good} into {folder}" in told[0]
    elsewhere = shutil.copy(good, tmp_path / "other.gguf")
    convert(tmp_path / "other.gguf", told.append)
    assert len(told) == 1
    assert model_folder(str(elsewhere)) == folder


def test_a_file_that_was_not_converted_says_how(good, cache):
    with pytest.raises(ModelError, match=r"not been converted yet; `sapo-node start --model .*good\.gguf` converts"):
        model_folder(str(good))


def test_without_the_package_the_extra_is_named(good, cache, monkeypatch):
    monkeypatch.setattr(gguf, "_NEEDED", ("a_package_that_nobody_has",))
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


# What is no such model.


def converted_in_a_fork(file, folder):
    """The exit status of the process that converts, and what it writes. A fork need not import transformers again."""
    parent, (reads, writes) = os.getpid(), os.pipe()
    if (child := os.fork()) == 0:
        status = 0
        try:
            with os.fdopen(writes, "w") as sys.stdout:
                status = from_gguf.main(file, folder, parent)
        finally:
            os._exit(status)
    os.close(writes)
    with os.fdopen(reads) as said:
        written = said.read()
    _, ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended), written


def test_a_file_that_is_cut_off_is_one_line(good, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(good.read_bytes()[:-100])
    status, written = converted_in_a_fork(path, tmp_path)
    assert status == 1
    assert "transformers cannot read it" in written
    assert "\n" not in written


def test_a_conversion_that_fails_is_one_line_and_leaves_nothing(good, cache, tmp_path, monkeypatch):
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\nprintf 'it is\\nno model'\nexit 1\n")
    failing.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(failing))
    with pytest.raises(ModelError, match=r"good.gguf cannot be converted: it is.*no model") as caught:
        convert(good, lambda _: None)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(LocalError, match="is no GGUF file"):
        write_folder(tmp_path / "m.gguf", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda writer: writer.tensors[0].pop("blk.1.ffn_up.weight"), r"lacks .* model\.layers\.1\.mlp\.up_proj"),
        (lambda writer: writer.add_tensor("rope_freqs.weight", np.ones(4, np.float32)), "rope_freqs.weight"),
    ],
    ids=["a weight is missing", "the rotation is slowed"],
)
def test_a_model_that_would_be_another_one_is_refused(sources, tmp_path, change, message):
    with pytest.raises(LocalError, match=message):
        converted(tmp_path / "m.gguf", sources["llama"], "llama", tmp_path / "m", change=change)


def test_a_pipe_is_no_file(tmp_path, cache):
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="is a pipe or a device"):
        convert(tmp_path / "m.gguf", lambda _: None)


def test_a_file_beyond_the_limit_is_not_read(tmp_path, cache):
    with (tmp_path / "m.gguf").open("wb") as file:
        file.truncate(65 * 2**30)
    with pytest.raises(ModelError, match="over the limit"):
        convert(tmp_path / "m.gguf", lambda _: None)


def test_the_process_that_converts_ends_at_its_limits(good, tmp_path, monkeypatch):
    monkeypatch.setattr(from_gguf, "MEMORY", 0)
    monkeypatch.setattr(from_gguf, "GROWTH", 0)
    status, _ = converted_in_a_fork(good, tmp_path)
    assert status == 1
