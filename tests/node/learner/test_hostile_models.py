"""Model folders that name code, have absurd sizes or are corrupt: each is one ModelError."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.utils import import_utils

from sapo_node.groups.messages import GenerateRequest, LearnerOptions, Refusal, Sampled, TrainGroup
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.batch import Refused, rows_of
from sapo_node.learner.generate import generate
from sapo_node.learner.model import ModelError, Unreadable, load
from sapo_node.learner.trial import require_trainable
from tiny_models import TEMPLATE, write_model, write_tokenizer

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("harmless"), "llama")


@pytest.fixture
def folder(harmless, tmp_path):
    return Path(shutil.copytree(harmless, tmp_path / "m"))


def options(folder):
    return LearnerOptions(checkpoints="", model=str(folder))


def change(folder, name, **changes):
    path = folder / name
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **changes}))


def the_refusal(folder):
    with pytest.raises(ModelError) as caught:
        require_trainable(load(options(folder)))
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value) or "template" in str(caught.value)
    return str(caught.value)


def test_a_harmless_folder_passes(folder):
    require_trainable(load(options(folder)))


TEMPLATES = {
    "raises": "{{ raise_exception('\x1b[2J no') }}",
    "reaches for a class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "divides by zero": "{{ 1 // 0 }}",
    "is no template": "{% for %}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_that_fails_is_found(folder, template):
    write_tokenizer(folder, template)
    assert "\x1b" not in the_refusal(folder)


def slow_regex(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    split = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.save(str(folder / "tokenizer.json"))


def nested(folder):
    (folder / "tokenizer.json").write_text("[" * 100_000 + "]" * 100_000)


def enormous(folder):
    with (folder / "tokenizer.json").open("wb") as file:
        file.truncate(100_000_000)


def a_pipe(folder):
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


TOKENIZERS = [nested, enormous, a_pipe]


@pytest.mark.parametrize("spoil", TOKENIZERS)
def test_a_tokenizer_that_fails_is_found(folder, spoil):
    spoil(folder)
    the_refusal(folder)


SETTINGS = {
    "a huge vocabulary": {"vocab_size": 2**40},
    "huge layers": {"hidden_size": 2**40},
    "a negative size": {"hidden_size": -16},
    "a word for a number": {"hidden_size": "many"},
    "a list for a number": {"num_hidden_layers": [2]},
    "an unknown kind": {"model_type": "nonesuch"},
    "not a number": {"rms_norm_eps": float("nan")},
    "an end beyond the vocabulary": {"eos_token_id": 10**6, "vocab_size": 200},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_settings_that_make_no_model_are_found(folder, changes):
    change(folder, "config.json", **changes)
    the_refusal(folder)


NO_JSON = ['{"a":' * 3000 + "1" + "}" * 3000, '{"a": %s}' % ("9" * 5000), "[]", "", "\udcff"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("tokenizer_config.json", ""), ("generation_config.json", ""), *(("config.json", text) for text in NO_JSON)],
    ids=lambda part: part[:6],
)
def test_settings_that_are_no_plain_json_are_found(folder, name, text):
    (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    the_refusal(folder)


def test_a_folder_where_a_settings_file_belongs_is_found(folder):
    (folder / "chat_template.jinja").mkdir()
    the_refusal(folder)


CHOICES = [
    ("config.json", "attn_implementation", "evil/repo"),
    ("config.json", "_attn_implementation", "evil/repo"),
    ("config.json", "_attn_implementation_internal", "evil/repo"),
    ("config.json", "attn_implementation", {"": "evil/repo"}),
    ("config.json", "attn_implementation", "flash_attention_2"),
    ("config.json", "experts_implementation", "evil/repo"),
    ("config.json", "text_config", {"attn_implementation": "evil/repo"}),
    ("config.json", "layers", [{"attn_implementation": "evil/repo"}]),
    ("config.json", "attn_implementation", "paged|evil/repo"),
    ("config.json", "attribute_map", {"other": "_attn_implementation"}),
    ("config.json", "auto_map", {"AutoModelForCausalLM": "x.M"}),
    ("config.json", "quantization_config", {"quant_method": "gptq"}),
    ("config.json", "configuration_files", ["config.4.0.0.json"]),
    ("config.json", "transformers_weights", "other.safetensors"),
    ("config.json", "use_kernels", True),
    ("config.json", "kernel_config", {"RMSNorm": "evil/repo:RMSNorm"}),
    ("config.json", "custom_pipelines", {"x": {}}),
    ("generation_config.json", "custom_generate", "evil/repo"),
    ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["x.T", None]}),
    ("tokenizer_config.json", "fast_tokenizer_files", ["tokenizer.4.0.0.json"]),
    ("tokenizer_config.json", "trust_remote_code", True),
]


@pytest.mark.parametrize(("name", "key", "value"), CHOICES, ids=lambda part: str(part)[:30])
def test_a_key_that_chooses_code_is_refused_by_name(folder, name, key, value):
    change(folder, name, **{key: value})
    with pytest.raises(ModelError, match="which chooses code; remove the key") as caught:
        load(options(folder))
    assert str(folder / name) in str(caught.value)
    assert (key if key not in {"text_config", "layers"} else "attn_implementation") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("config.json", "attn_implementation", "eager"),
        ("config.json", "_attn_implementation", "sdpa"),
        ("config.json", "use_kernels", False),
        ("config.json", "custom_pipelines", {}),
        ("generation_config.json", "cache_implementation", "hybrid"),  # as Gemma has it
    ],
)
def test_a_key_that_chooses_nothing_foreign_is_taken(folder, name, key, value):
    change(folder, name, **{key: value})
    load(options(folder))


@pytest.mark.parametrize(
    "part", ["evil.bin", "../other.safetensors", "/etc/x.safetensors", "a\\b.safetensors", 7, None]
)
def test_an_index_that_names_no_safetensors_in_the_folder_is_refused(folder, part):
    """transformers unpickles a part with another ending, although it is asked for safetensors."""
    (folder / "evil.bin").write_bytes(b"")
    (folder / "model.safetensors").unlink()
    change(folder, "model.safetensors.index.json", metadata={}, weight_map={"model.norm.weight": part})
    with pytest.raises(ModelError, match="as weights, which is no safetensors file"):
        load(options(folder))


def test_an_index_of_parts_in_the_folder_is_taken(folder):
    parts = dict.fromkeys(safe_open(folder / "model.safetensors", "pt").keys(), "part-1.safetensors")
    (folder / "model.safetensors").rename(folder / "part-1.safetensors")
    change(folder, "model.safetensors.index.json", metadata={}, weight_map=parts)
    load(options(folder))


CHAT_TEMPLATES = [{"default": "{{ 1 // 0 }}"}, [{"name": "default", "template": "{{ 1 // 0 }}"}], 5, [5]]


@pytest.mark.parametrize("template", CHAT_TEMPLATES, ids=str)
def test_a_template_among_the_settings_of_the_tokenizer_is_tried_like_one_in_a_file(folder, template):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder, "tokenizer_config.json", chat_template=template)
    the_refusal(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "custom_generate"])
def test_a_part_that_chooses_code_is_refused_by_name(folder, name):
    (folder / name).mkdir()
    with pytest.raises(ModelError, match=name):
        load(options(folder))


KERNELS = """
import sys

class _Names(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return len(name)

class _Any(metaclass=_Names):
    def __init__(self, *arguments, **named): pass

def get_kernel(*arguments, **named):
    sys.stdout.write("a foreign kernel was fetched\\n")
    raise RuntimeError("fetched")

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return (lambda *arguments, **named: lambda cls: cls) if name[0].islower() else _Any
"""
TRY = """
import sys
from contextlib import suppress
from transformers.models.rwkv import modeling_rwkv
from sapo_node.learner import folder as checks
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.model import ModelError, load, outline

# A machine with a GPU and ninja, where an RWKV fetches a kernel whatever its settings are.
modeling_rwkv.is_ninja_available = modeling_rwkv.is_torch_cuda_available = lambda: True
named, rwkv = (LearnerOptions(checkpoints="", model=folder) for folder in sys.argv[1:])
for use in (lambda: load(named), lambda: outline(rwkv)):
    with suppress(ModelError):
        use()
checks.require_plain = lambda _: None
with suppress(ModelError):
    load(named)
print("the node has tried")
"""
DIRECT = """
import sys
from contextlib import suppress
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.rwkv import modeling_rwkv

modeling_rwkv.is_ninja_available = modeling_rwkv.is_torch_cuda_available = lambda: True
with suppress(ValueError):
    AutoModelForCausalLM.from_pretrained(sys.argv[1], local_files_only=True, attn_implementation="kernels-community/a")
AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[2]))
"""
FETCHED = "a foreign kernel was fetched"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(TRY, ["the node has tried"], id="the node"),
        pytest.param(DIRECT, [FETCHED] * 3, id="transformers", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_no_folder_reaches_the_package_that_fetches_kernels(folder, tmp_path, program, said):
    """Not with the check of the settings, and not without it. transformers itself shows that the stub notices."""
    site = tmp_path / "site"
    (site / "kernels").mkdir(parents=True)
    (site / "kernels" / "__init__.py").write_text(KERNELS)
    version = import_utils.KERNELS_MIN_VERSION  # or transformers would take the stub for none
    (site / f"kernels-{version}.dist-info").mkdir()
    (site / f"kernels-{version}.dist-info" / "METADATA").write_text(f"Name: kernels\nVersion: {version}\n")
    (site / f"kernels-{version}.dist-info" / "top_level.txt").write_text("kernels\n")
    change(folder, "config.json", attn_implementation="kernels-community/any")
    rwkv = tmp_path / "rwkv"
    rwkv.mkdir()
    sizes = {"vocab_size": 300, "context_length": 64, "hidden_size": 16, "num_hidden_layers": 2}
    change(rwkv, "config.json", model_type="rwkv", architectures=["RwkvForCausalLM"], **sizes)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(rwkv)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == said, done.stderr


def test_the_tokenizer_is_the_one_in_the_folder_whatever_its_settings_name(folder, tmp_path):
    before = load(options(folder)).prompt_tokens(Prompt("2 + 2?"))
    write_model(tmp_path / "other", "llama")
    write_tokenizer(tmp_path / "other", texts=["2 + 2?"] * 8)
    change(folder, "tokenizer_config.json", tokenizer_file=str(tmp_path / "other" / "tokenizer.json"))
    assert load(options(folder)).prompt_tokens(Prompt("2 + 2?")) == before


def test_a_peers_text_on_which_the_tokenizer_panics_costs_its_group_alone(folder):
    slow_regex(folder)
    policy = load(options(folder))
    good = TrainGroup("external", "2 + 2?", 1.0, (1.0,), (Sampled("4", "stop"),))
    bad = replace(good, completions=(Sampled("a" * 60 + "!", "stop"),))
    with pytest.raises(Refused, match=Refusal.UNREADABLE):
        rows_of(policy, bad, 80)
    assert rows_of(policy, good, 80)


def test_a_peers_text_of_tokens_that_the_model_lacks_is_refused(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([f"€{number}" for number in range(50)])
    tokenizer.save(str(folder / "tokenizer.json"))
    policy = load(options(folder))
    with pytest.raises(Unreadable, match="the model has 300"):
        policy.encode_foreign("€49")
    assert policy.encode_foreign("!!")


def test_special_tokens_that_the_model_lacks_are_never_drawn(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([f"<{number}>" for number in range(100)])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert generate(load(options(folder)), GenerateRequest((Prompt("2 + 2?"),), 2, 4, 1), 1024)


def test_a_template_of_which_only_some_questions_are_bad_is_one_clear_line(folder):
    write_tokenizer(folder, "{% if 'bad' in messages[-1]['content'] %}{{ 1 // 0 }}{% endif %}" + TEMPLATE)
    policy = load(options(folder))
    assert policy.prompt_tokens(Prompt("good"))
    with pytest.raises(ModelError, match="m: the chat template fails"):
        policy.prompt_tokens(Prompt("bad"))
