"""GGUF files of tiny models, written with llama.cpp's own package from folders that `tiny_models` makes."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tiny_models import FAMILIES, SHAPE, TEMPLATE, write_tokenizer

FAMILIES = {
    **{name: FAMILIES[name] for name in ("llama", "qwen2")},
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=128)),
}
TEXTS = ["the answer is four", "so <answer>4</answer>", "it's 1212 and 1212"] * 8
_NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"{part}_norm": f"attn_{part}_norm" for part in "qk"},
    "o_proj": "attn_output",
    **{f"{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}


def write_source(folder: Path, family: str, **shape) -> Path:
    """A model folder with a tokenizer that has merges, and a chat template; weights large enough to matter."""
    torch.manual_seed(0)
    made = FAMILIES[family]()
    if shape:
        made = type(made)(type(made.config)(**{**made.config.to_dict(), **shape}))
    for value in made.parameters():
        torch.nn.init.normal_(value, std=0.2)
    made.save_pretrained(folder)
    write_tokenizer(folder, TEMPLATE, texts=TEXTS)
    return folder


def write_gguf(path: Path, source: Path, family: str, *, kind: str = "F32", pre: str = "gpt-2", change=None) -> Path:
    """The GGUF file of a model folder. `kind` is the format of its matrices. `change` may add to the writer."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    config = model.config
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if family != "qwen2":
        writer.add_key_length(config.head_dim)
    _add_tokenizer(writer, source, pre, size=config.vocab_size)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            _add_tensor(writer, config, family, name, value.numpy(), kind=kind)
    if change:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer, source, pre, *, size):
    described = json.loads((source / "tokenizer.json").read_text())
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    # As convert_hf_to_gguf.py of llama.cpp does: each row of the embedding has a token.
    unused = [f"[PAD{number}]" for number in range(len(tokens), size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*tokens, *unused])
    writer.add_token_types([3 if token == "<eos>" else 1 for token in tokens] + [5] * len(unused))
    writer.add_token_merges([" ".join(merge) for merge in described["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.token_to_id("<eos>"))
    writer.add_chat_template(TEMPLATE)


def _add_tensor(writer, config, family, name, values, *, kind):
    parts = name.split(".")
    place = f"blk.{parts[2]}." if parts[1] == "layers" else ""
    mine = place + ("output_norm" if parts[-2] == "norm" else _NAMES[parts[-2]]) + "." + parts[-1]
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(parts[-2])
    if family == "llama" and heads:
        # As convert_hf_to_gguf.py of llama.cpp does.
        halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        values = halves.swapaxes(1, 2).reshape(values.shape)
    chosen = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
    data = gguf.quantize(np.ascontiguousarray(values, dtype=np.float32), chosen)
    writer.add_tensor(mine, data, raw_dtype=chosen)
