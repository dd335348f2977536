"""Language models of several architectures, small enough to make in a test, in folders as Hugging Face has them."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

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
FAMILIES = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=1, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2_SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=8)),
    "phi": lambda: PhiForCausalLM(PhiConfig(**SHAPE, num_key_value_heads=1)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, **WINDOW)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, **WINDOW, head_dim=8)),
}
MIXTURE = "mixtral"
"""Whose experts are chosen by what it reads: it trains, but its memory cannot be estimated beforehand."""
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant] "


def write_model(folder: Path, family: str) -> Path:
    """Weights and a byte-level tokenizer, the same each time."""
    torch.manual_seed(0)
    made = MixtralForCausalLM(MixtralConfig(**SHAPE, num_local_experts=2)) if family == MIXTURE else FAMILIES[family]()
    made.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


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
