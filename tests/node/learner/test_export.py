"""What a node has learnt, as a folder that anybody loads."""

import json
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, Qwen2Tokenizer

from sapo_node.groups.advantage import advantages
from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import SYSTEM, Prompt
from sapo_node.learner import checkpoint
from sapo_node.learner.card import CardFacts
from sapo_node.learner.export import export, main
from sapo_node.learner.export_client import Exported, ExportRequest, run_export
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_protocol import LocalError
from tiny_models import TEMPLATE, write_model, write_tokenizer

QUESTION = "What is 2 + 2?"


def learnt(folder, steps=2, learning_rate=0.01, **ways):
    """A policy after a few steps, its checkpoint in the folder; and the options that name both."""
    options = LearnerOptions(checkpoints=str(folder), groups=1, completions=4, learning_rate=learning_rate, **ways)
    trainer = Trainer(load(options), options)
    for step in range(1, steps + 1):
        [sampled] = generate(trainer.policy, GenerateRequest((Prompt(QUESTION),), 4, 80, step), 1024)
        trainer.train(TrainRequest(step, (TrainGroup("local", QUESTION, 1.0, advantages([1, 1, 0, 0]), sampled),)))
    checkpoint.save(trainer, folder)
    return trainer, options


FACTS = CardFacts(base="tiny", swarm="starter", network_id="ab" * 32)


def exported(options, output, **ways):
    return export(ExportRequest(options, str(output), FACTS, **ways))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """All weights, after two steps."""
    return learnt(tmp_path_factory.mktemp("plain") / "checkpoints")


@pytest.fixture
def options(plain, tmp_path):
    """Of the same, with a copy of its checkpoint."""
    shutil.copytree(plain[1].checkpoints, tmp_path / "checkpoints")
    return replace(plain[1], checkpoints=str(tmp_path / "checkpoints"))


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits


PLAINLY = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, AutoTokenizer

for folder in sys.argv[2:]:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    messages = json.loads(sys.argv[1])
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    tokens = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0].tolist()
    length = prompt["input_ids"].shape[1]
    print(json.dumps([tokens[:length], [token for token in tokens[length:] if token != tokenizer.eos_token_id]]))
"""


def answered(trainer):
    """The prompt and the likeliest answer, as the node's own tokens."""
    with trainer.averaged():
        [[sampled]] = generate(trainer.policy, GenerateRequest((Prompt(QUESTION),), 1, 24, 1, temperature=1e-6), 1024)
    return [trainer.policy.prompt_tokens(Prompt(QUESTION)), list(sampled.tokens)]


@pytest.fixture(scope="module")
def ways(tmp_path_factory, plain):
    """Each kind of policy after two steps, and the options that name its checkpoint."""
    folder = tmp_path_factory.mktemp("ways")
    write_model(folder / "tiny", "llama")
    write_tokenizer(folder / "tiny", TEMPLATE, texts=[QUESTION, "the answer is <answer>4</answer>"] * 8)
    write_model(folder / "qwen", "qwen2")
    write_tokenizer(folder / "qwen", TEMPLATE, texts=[QUESTION, "so <answer>4</answer>"] * 8)
    return {
        "seed": plain,
        "llama": learnt(folder / "of tiny", model=str(folder / "tiny")),
        "qwen2": learnt(folder / "of qwen", model=str(folder / "qwen")),
        "adapters": learnt(folder / "adapted", lora=4),
    }


@pytest.fixture(scope="module")
def exports(tmp_path_factory, ways):
    """The export of each kind of policy, and of adapters alone, made by a user whose files others may not read."""
    folder = tmp_path_factory.mktemp("exports")
    before = os.umask(0o027)
    try:
        for way, (_, options) in ways.items():
            assert exported(options, folder / way) == Exported(2)
        assert exported(ways["adapters"][1], folder / "adapters alone", adapter_only=True) == Exported(2)
    finally:
        os.umask(before)
    return folder


@pytest.mark.slow
def test_plain_transformers_read_and_answer_as_the_node_does(ways, exports):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    done = subprocess.run(
        [sys.executable, "-c", PLAINLY, json.dumps(messages), *(str(exports / way) for way in ways)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    assert theirs == [answered(trainer) for trainer, _ in ways.values()]


def test_plain_transformers_sample_from_the_probabilities_that_were_evaluated(exports):
    settings = GenerationConfig.from_pretrained(exports / "llama")
    assert (settings.do_sample, settings.temperature, settings.top_k, settings.top_p) == (True, 1.0, 0, 1.0)


@pytest.mark.parametrize("way", ["seed", "llama", "qwen2", "adapters"])
def test_the_weights_are_the_averaged_ones(ways, exports, way):
    trainer, options = ways[way]
    model = AutoModelForCausalLM.from_pretrained(exports / way)
    tokens = torch.tensor([trainer.policy.prompt_tokens(Prompt(QUESTION))])
    with trainer.averaged():
        torch.testing.assert_close(logits(model, tokens), logits(trainer.policy.model, tokens), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(logits(model, tokens), logits(trainer.policy.model, tokens), atol=1e-3)
    untaught = load(replace(options, lora=0)).model
    assert not torch.allclose(logits(model, tokens), logits(untaught, tokens), atol=1e-3)


def test_a_qwen2_with_the_tokenizer_of_its_kind_stays_one(tmp_path):
    """The tokenizer that its family's class builds from tokenizer.json is the one in the file."""
    write_model(tmp_path / "qwen", "qwen2")
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer({letter: place for place, letter in enumerate(alphabet)}, [], eos_token="<eos>")
    tokenizer.save_pretrained(tmp_path / "qwen")
    _, options = learnt(tmp_path / "checkpoints", model=str(tmp_path / "qwen"))
    exported(options, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "qwen2"


def test_the_folder_tells_nothing_of_this_machine_or_of_loading(tmp_path, ways):
    _, options = ways["llama"]
    spoilt = tmp_path / "spoilt"
    shutil.copytree(options.model, spoilt)
    settings = json.loads((spoilt / "tokenizer_config.json").read_text())
    leftovers = {"is_local": True, "local_files_only": True, "name_or_path": "/home/x", "tokenizer_file": "/home/x/t"}
    (spoilt / "tokenizer_config.json").write_text(json.dumps(settings | leftovers))
    exported(replace(options, model=str(spoilt)), tmp_path / "out")
    written = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert written == settings
    for path in (tmp_path / "out").glob("*.json"):
        assert str(tmp_path) not in path.read_text()
        assert "/home/x" not in path.read_text()
        assert "name_or_path" not in path.read_text()


def test_a_node_starts_from_the_folder(exports):
    told = LearnerOptions(checkpoints="", model=str(exports / "seed"))
    assert answered(Trainer(load(told), told))


def test_the_best_weights_are_exported_where_they_are_asked_for(tmp_path, plain):
    trainer, options = plain
    told = replace(options, checkpoints=str(tmp_path / "checkpoints"))
    before = Trainer(load(told), told)
    checkpoint.save_best(before, tmp_path / "checkpoints", needed=())
    checkpoint.save(trainer, tmp_path / "checkpoints")
    assert exported(told, tmp_path / "out", best=True).step == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokens = torch.tensor([before.policy.prompt_tokens(Prompt(QUESTION))])
    torch.testing.assert_close(logits(model, tokens), logits(before.policy.model, tokens), atol=1e-4, rtol=1e-4)


def test_where_no_weights_were_the_best_the_export_says_so(tmp_path, options):
    with pytest.raises(LocalError, match="there are no best weights"):
        exported(options, tmp_path / "out", best=True)


@pytest.mark.slow
def test_the_lines_of_the_readme_get_an_answer(tmp_path):
    _, options = learnt(tmp_path / "checkpoints", learning_rate=1e-5)
    exported(options, tmp_path / "learnt")
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    [code] = re.findall(
        "```python\n(.*?)```",
        readme.partition("## Your model, your trainer, your answers")[2].partition("\n## ")[0],
        re.DOTALL,
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<answer>" in done.stdout


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path, options):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(LocalError, match=r"cannot write .*out .*; free some space there") as caught:
            exported(options, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_place_that_is_in_no_folder_is_refused_before_anything_is_loaded(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file/out", "none/out"):
        with pytest.raises(LocalError, match="is not a folder; make it first"):
            exported(LearnerOptions(checkpoints="", model="/none"), tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_checkpoint_of_another_model_is_refused_with_the_names_of_both(tmp_path, options, ways):
    with pytest.raises(LocalError, match=r"belong to seed \(all weights\), and you gave tiny"):
        exported(replace(options, model=ways["llama"][1].model), tmp_path / "out")


def test_nothing_changes_where_the_checkpoints_lie(tmp_path, options):
    (tmp_path / "checkpoints" / ".unfinished-step-00000003").mkdir()
    before = sorted(path.name for path in (tmp_path / "checkpoints").rglob("*"))
    exported(options, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "checkpoints").rglob("*")) == before


def test_a_damaged_checkpoint_is_passed_over(tmp_path, options):
    newest = tmp_path / "checkpoints" / "step-00000009"
    shutil.copytree(tmp_path / "checkpoints" / "step-00000002", newest)
    (newest / "weights.safetensors").write_bytes(b"nothing")
    assert exported(options, tmp_path / "out").step == 2
    assert newest.exists()


def test_a_node_without_a_checkpoint_says_when_there_will_be_one(tmp_path):
    with pytest.raises(LocalError, match="every ten rounds"):
        exported(LearnerOptions(checkpoints=str(tmp_path / "none")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(LocalError, match="exists; name a new folder"):
        exported(LearnerOptions(checkpoints=str(tmp_path)), tmp_path / "out")


@pytest.mark.slow
def test_the_program_says_the_step_or_what_is_wrong_in_one_line(tmp_path, options, capsys):
    request = json.dumps(to_json(ExportRequest(options, str(tmp_path / "out"), FACTS)))
    command = [sys.executable, "-m", "sapo_node.learner.export", request]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert from_json(Exported, json.loads(done.stdout)) == Exported(2)
    assert main(request) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("name a new folder")


def test_adapters_alone_give_the_base_model_what_the_node_learnt(ways, exports):
    trainer, _ = ways["adapters"]
    folder = exports / "adapters alone"
    assert not (folder / "model.safetensors").exists()
    tokens = torch.tensor([trainer.policy.prompt_tokens(Prompt(QUESTION))])
    before = logits(AutoModelForCausalLM.from_pretrained(POLICY_DIR, dtype=torch.float32), tokens)
    model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with trainer.averaged():
        expected = logits(trainer.policy.model, tokens)
    torch.testing.assert_close(logits(model, tokens), expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(before, expected, atol=1e-3)
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded(QUESTION)["input_ids"] == trainer.policy.tokenizer(QUESTION)["input_ids"]


def test_adapters_name_a_model_of_the_hub_by_its_name_there(tmp_path, monkeypatch):
    """peft would name the folder in the cache of this machine."""
    cache = tmp_path / "hub" / "models--somebody--tiny"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("1" * 40)
    write_model(cache / "snapshots" / ("1" * 40), "llama")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    _, options = learnt(tmp_path / "checkpoints", model="somebody/tiny", lora=2)
    exported(options, tmp_path / "out", adapter_only=True)
    assert base_of(tmp_path / "out") == "somebody/tiny"


def test_adapters_name_a_folder_by_its_whole_path(tmp_path, monkeypatch):
    write_model(tmp_path / "tiny", "llama")
    monkeypatch.chdir(tmp_path)
    _, options = learnt(tmp_path / "checkpoints", model="./tiny", lora=2)
    exported(options, tmp_path / "out", adapter_only=True)
    assert base_of(tmp_path / "out") == str(tmp_path / "tiny")


def base_of(folder):
    return json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]


@pytest.mark.parametrize("way", ["adapters", "adapters alone"])
def test_whoever_may_read_one_file_of_an_export_may_read_all(exports, way):
    assert {stat.S_IMODE(file.stat().st_mode) for file in (exports / way).iterdir()} == {0o640}


def test_a_node_without_adapters_has_none_to_export(tmp_path, options):
    with pytest.raises(LocalError, match="trains all weights, so there are no adapters; leave out --adapter-only"):
        exported(options, tmp_path / "out", adapter_only=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("way", ["seed", "adapters alone"])
def test_every_folder_has_a_model_card(exports, way):
    card = (exports / way / "README.md").read_text()
    assert "| rounds | 2 |" in card
    assert str(exports.parent) not in card


def test_an_export_whose_last_words_are_no_text_is_one_error(tmp_path, monkeypatch):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nprintf '\\377 it died' >&2\nexit 1\n")
    dying.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(dying))
    with pytest.raises(LocalError, match="it died"):
        run_export(ExportRequest(LearnerOptions(checkpoints=str(tmp_path)), str(tmp_path / "out"), FACTS))
