"""Language models of several architectures, small enough to make in a test, in folders as Hugging Face has them."""

import copy
import functools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    BertConfig,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    FalconH1Config,
    FalconH1ForCausalLM,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Lfm2MoeConfig,
    Lfm2MoeForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoHybridConfig,
    OlmoHybridForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PhiConfig,
    PhiForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    SiglipVisionConfig,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner.model import Policy, load

SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 256,
}
GPT2_SHAPE = {
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 300,
    "n_positions": 512,
    "bos_token_id": None,
    "eos_token_id": 256,
}
WINDOW = {"num_key_value_heads": 1, "sliding_window": 8}
"""Far shorter than a prompt: these models forget most of what they read."""
GPT_NEO_SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 8,
    "bos_token_id": None,
    "eos_token_id": 256,
}
BLOOM_SHAPE = {
    "hidden_size": 16,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 300,
    "bos_token_id": None,
    "eos_token_id": 256,
    "pad_token_id": None,
}
SMOLLM3 = {**SHAPE, "num_key_value_heads": 1, "no_rope_layer_interval": 2, "pad_token_id": None}
"""Its second layer has no positions."""
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
"""With more layers than the part for text has."""
IMAGES = {"mm_tokens_per_image": 4, "image_token_index": 290, "boi_token_index": 291, "eoi_token_index": 292}
FAMILIES = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=1, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2_SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=8)),
    "smollm3": lambda: SmolLM3ForCausalLM(SmolLM3Config(**SMOLLM3)),
    "phi": lambda: PhiForCausalLM(PhiConfig(**SHAPE, num_key_value_heads=1)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, **WINDOW)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, **WINDOW, head_dim=8)),
    "gemma3_with_images": lambda: Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=Gemma3TextConfig(**SHAPE, **WINDOW, head_dim=8),
            vision_config=SiglipVisionConfig(**VISION),
            **IMAGES,
        )
    ),
    "gpt_neo": lambda: GPTNeoForCausalLM(GPTNeoConfig(**GPT_NEO_SHAPE)),
    "bloom": lambda: BloomForCausalLM(BloomConfig(**BLOOM_SHAPE)),
}
DELTA_NET = {
    **SHAPE,
    "layer_types": ["linear_attention", "full_attention"],
    "num_key_value_heads": 1,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA = {
    **SHAPE,
    "num_key_value_heads": 1,
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
CONVOLUTION = {**SHAPE, "num_key_value_heads": 1, "layer_types": ["conv", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GRANITE = {"layer_types": ["mamba", "attention"], "num_local_experts": 0, "shared_intermediate_size": 32}
RECURRENT_FAMILIES = {
    "qwen3_5_text": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**DELTA_NET, head_dim=8)),
    "qwen3_next": lambda: Qwen3NextForCausalLM(
        Qwen3NextConfig(**DELTA_NET, **EXPERTS, head_dim=8, shared_expert_intermediate_size=16)
    ),
    "olmo_hybrid": lambda: OlmoHybridForCausalLM(OlmoHybridConfig(**DELTA_NET, pad_token_id=None)),
    "lfm2": lambda: Lfm2ForCausalLM(Lfm2Config(**CONVOLUTION, block_auto_adjust_ff_dim=False)),
    "lfm2_moe": lambda: Lfm2MoeForCausalLM(Lfm2MoeConfig(**CONVOLUTION, **EXPERTS, num_dense_layers=1)),
    "bamba": lambda: BambaForCausalLM(BambaConfig(**MAMBA, attn_layer_indices=[1])),
    "falcon_h1": lambda: FalconH1ForCausalLM(FalconH1Config(**MAMBA, mamba_d_ssm=32, head_dim=8)),
    "granitemoehybrid": lambda: GraniteMoeHybridForCausalLM(GraniteMoeHybridConfig(**MAMBA, **GRANITE)),
}
"""Of each type of model with recurrent layers that the node can train."""
UNKNOWN_FAMILIES = {
    "jamba": lambda: JambaForCausalLM(JambaConfig(**SHAPE, attn_layer_period=2, attn_layer_offset=1, num_experts=2)),
    "mamba2": lambda: Mamba2ForCausalLM(
        Mamba2Config(hidden_size=16, num_heads=4, head_dim=8, n_groups=1, num_hidden_layers=2, vocab_size=300)
    ),
}
"""Recurrent models that it cannot train."""
MISFITS = {
    "openai-gpt": lambda: OpenAIGPTLMHeadModel(
        OpenAIGPTConfig(n_embd=16, n_layer=2, n_head=2, vocab_size=300, n_positions=512)
    ),
    "git": lambda: GitForCausalLM(GitConfig(**SHAPE, initializer_range=0.5, vision_config=VISION)),
}
"""Models that transformers gives no cache, or one that takes cached text for an image."""
ROUTED = {
    "llama4": lambda: Llama4ForCausalLM(
        Llama4TextConfig(**SHAPE, num_key_value_heads=1, head_dim=8, num_local_experts=2, intermediate_size_mlp=32)
    ),
    "phimoe": lambda: PhimoeForCausalLM(PhimoeConfig(**SHAPE, num_key_value_heads=1, num_local_experts=2)),
}
"""Mixtures of experts whose routers are linear modules that return two values."""
ENCODER = "bert"
"""transformers reads it as a decoder, which it is not."""
MIXTURE = "mixtral"
"""Whose experts are chosen by what it reads: it trains, but its memory cannot be estimated beforehand."""
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant] "


@functools.cache
def _loaded(options: LearnerOptions) -> Policy:
    return load(options)


def policy_of(options: LearnerOptions) -> Policy:
    """A policy whose weights a test may change. A process loads each one once, and shares its tokenizer."""
    loaded = _loaded(replace(options, checkpoints=""))
    return replace(loaded, model=copy.deepcopy(loaded.model))


def each_of(families: Iterable[str], *always: str) -> list:
    """Parameters of a test: `always` in each run, the other families at night."""
    return [pytest.param(name, marks=() if name in always else pytest.mark.slow) for name in families]


def _mixture() -> MixtralForCausalLM:
    return MixtralForCausalLM(MixtralConfig(**SHAPE, num_key_value_heads=1, num_local_experts=2))


def _encoder() -> BertLMHeadModel:
    return BertLMHeadModel(BertConfig(**SHAPE, initializer_range=1.0))


def write_model(folder: Path, family: str) -> Path:
    """Weights and a byte-level tokenizer, the same each time."""
    torch.manual_seed(0)
    families = {
        **FAMILIES,
        **RECURRENT_FAMILIES,
        **UNKNOWN_FAMILIES,
        **MISFITS,
        **ROUTED,
        MIXTURE: _mixture,
        ENCODER: _encoder,
    }
    made = families[family]()
    made.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


class Folders(dict[str, Path]):
    """The folder of each family of models, written when a test first asks for it."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._made = tmp_path_factory

    def __missing__(self, family: str) -> Path:
        self[family] = write_model(self._made.mktemp(family), family)
        return self[family]


def write_tokenizer(folder: Path, chat_template: str | None = None, *, texts: list[str] | None = None) -> None:
    """Of single bytes, or with merges learned from `texts`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if texts:
        tokenizer.train_from_iterator(
            texts, trainers.BpeTrainer(vocab_size=299, initial_alphabet=alphabet, show_progress=False)
        )
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "chat_template": chat_template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
