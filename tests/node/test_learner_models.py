"""Other models than the seed: families, adapters, templates, and folders that cannot be used."""

import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from sapo_node.advantage import advantages
from sapo_node.learner.generate import generate
from sapo_node.learner.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.learner.model import ModelError, load
from sapo_node.learner.trainer import Trainer

torch.set_num_threads(1)

QUESTION = "What is 2 + 2?"
SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}
FAMILIES = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=1)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE)),
}


def write_tokenizer(folder, chat_template=None):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "chat_template": chat_template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for name, make in FAMILIES.items():
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp(name)
        make().save_pretrained(folder)
        write_tokenizer(folder)
        made[name] = folder
    return made


def options(folder, **changes):
    return LearnerOptions(checkpoints="", model=str(folder), groups=1, completions=4, **changes)


def take_a_step(trainer):
    [sampled] = generate(trainer.policy, GenerateRequest((QUESTION,), 4, 8, 1), 1024)
    group = TrainGroup("local", QUESTION, 1.0, advantages([1, 0, 0, 0]), sampled)
    return trainer.train(TrainRequest(trainer.step + 1, (group,)))


@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_this_family_loads_samples_and_takes_a_step(folders, family, lora):
    chosen = options(folders[family], lora=lora)
    trainer = Trainer(load(chosen), chosen)
    before = [value.detach().clone() for value in trainer.parameters]
    report = take_a_step(trainer)
    assert report.skipped is None
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.parameters, strict=True))


def test_adapters_alone_are_trained(folders):
    policy = load(options(folders["llama"], lora=2))
    assert all("lora_" in name for name, _ in policy.trainable())


def test_adapters_start_the_same_each_time(folders):
    one, two = (load(options(folders["llama"], lora=2)).trainable() for _ in range(2))
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(one, two, strict=True))


def test_the_fingerprint_tells_adapters_and_models_apart(folders):
    chosen = [options(folders["llama"]), options(folders["llama"], lora=2), options(folders["qwen2"])]
    assert len({load(each).fingerprint for each in chosen}) == 3


def test_without_a_template_the_prompt_asks_for_answer_tags(folders):
    policy = load(options(folders["llama"]))
    prompt = policy.decode(policy.prompt(QUESTION))
    assert "<answer>" in prompt
    assert QUESTION in prompt


TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant] "


def test_a_chat_template_is_used_with_a_system_text(folders, tmp_path):
    shutil.copytree(folders["llama"], tmp_path / "m")
    write_tokenizer(tmp_path / "m", TEMPLATE)
    policy = load(options(tmp_path / "m"))
    prompt = policy.decode(policy.prompt(QUESTION))
    assert prompt.startswith("[system] ")
    assert "<answer>" in prompt
    assert prompt.endswith(f"[user] {QUESTION}\n[assistant] ")


def test_a_template_without_a_system_role_still_gets_the_request_for_tags(folders, tmp_path):
    shutil.copytree(folders["llama"], tmp_path / "m")
    refuse = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    write_tokenizer(tmp_path / "m", refuse + TEMPLATE)
    policy = load(options(tmp_path / "m"))
    prompt = policy.decode(policy.prompt(QUESTION))
    assert prompt.startswith("[user] ")
    assert "<answer>" in prompt


def corrupt_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")


def no_end(folder):
    (folder / "tokenizer_config.json").write_text("{}")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    (folder / "generation_config.json").unlink(missing_ok=True)


def code_of_its_own(folder):
    config = json.loads((folder / "config.json").read_text())
    own = {"auto_map": {"AutoConfig": "x.C", "AutoModelForCausalLM": "x.M"}, "model_type": "own"}
    (folder / "config.json").write_text(json.dumps({**config, **own}))
    (folder / "x.py").write_text("raise SystemExit('ran')")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (corrupt_weights, "corrupt"),
        (no_weights, "no usable causal language model"),
        (no_tokenizer, "has no tokenizer.json"),
        (broken_tokenizer, "tokenizer of .* is broken"),
        (no_end, "no end-of-text token"),
        (code_of_its_own, "no usable causal language model"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_clear_line(folders, tmp_path, spoil, message):
    folder = tmp_path / "m"
    shutil.copytree(folders["qwen2"], folder)
    spoil(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load(options(folder))
    assert "\n" not in str(caught.value)


def test_a_missing_folder_says_so(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        load(options(tmp_path / "none"))
