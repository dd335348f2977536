"""Knows the architectures of GGUF files that the node converts: their settings, and the names of their tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sapo_node.learner.gguf.reader import GgufError, Header
from sapo_node.learner.gguf.rotation import FACTORS, rotation

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_OUTSIDE_LAYERS = {_EMBEDDING: "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_IN_LAYERS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_BIASES = {f"attn_{part}.bias": f"self_attn.{part}_proj.bias" for part in "qkv"}
_NORMS = {f"attn_{part}_norm.weight": f"self_attn.{part}_norm.weight" for part in "qk"}
MAX_LAYERS = 1024
FLOAT_DIGITS = 7
"""Significant digits of a float32. The file holds 1e-5 as 9.999999747378752e-06."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    model_type: str
    """Its name in transformers."""
    class_name: str
    more: Mapping[str, str]
    """Tensors of a layer beyond `_IN_LAYERS`."""
    paired: bool = False
    """Whether the file holds the rows of queries and keys in pairs; see `weights`."""


_ARCHITECTURES = {
    "llama": _Architecture("llama", "LlamaForCausalLM", {}, paired=True),
    "qwen2": _Architecture("qwen2", "Qwen2ForCausalLM", _BIASES),
    "qwen3": _Architecture("qwen3", "Qwen3ForCausalLM", _NORMS),
}
"""Name in the file -> what it is. A Mistral has the name and the tensors of a Llama."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a model folder needs to know of a file."""

    config: Mapping[str, Any]
    """The contents of config.json."""
    names: Mapping[str, str]
    """Name of each tensor in the file -> its name in transformers."""
    heads: Mapping[str, int]
    """Tensor in the file whose rows lie in pairs -> its number of heads."""


def describe(header: Header) -> Described:
    """Return settings and names. Raises GgufError for an architecture that the node does not convert exactly."""
    name = header.require("general.architecture", str)
    if name not in _ARCHITECTURES:
        raise GgufError(f"its architecture is {name!r}; the node converts {', '.join(_ARCHITECTURES)}")
    architecture = _ARCHITECTURES[name]
    _require_plain(header, name)
    layers = header.require(f"{name}.block_count", int)
    if not 0 < layers <= MAX_LAYERS:
        raise GgufError(f"it claims {layers} layers")
    names = _names(header, architecture, layers)
    config = _config(header, name, architecture)
    heads = {
        f"blk.{layer}.attn_{part}.weight": config[key]
        for layer in range(layers)
        for part, key in (("q", "num_attention_heads"), ("k", "num_key_value_heads"))
    }
    return Described(config, names, heads if architecture.paired else {})


def _require_plain(header: Header, name: str) -> None:
    """Raises GgufError for what changes the computation and has no equal in `_config`."""
    if header.get(f"{name}.expert_count", int, 0):
        raise GgufError("it is a mixture of experts, which the node does not convert")
    if header.get(f"{name}.rope.scaling.type", str, "none") != "none":
        raise GgufError("it scales its rotary embedding, which the node does not convert")


def _names(header: Header, architecture: _Architecture, layers: int) -> Mapping[str, str]:
    """Return the names of all tensors. Raises GgufError if one is missing, or if there is another one."""
    names = dict(_OUTSIDE_LAYERS)
    if _OUTPUT in header.tensors:
        names[_OUTPUT] = "lm_head.weight"
    for layer in range(layers):
        for mine, theirs in {**_IN_LAYERS, **architecture.more}.items():
            names[f"blk.{layer}.{mine}"] = f"model.layers.{layer}.{theirs}"
    # transformers fills a missing tensor with random numbers, and ignores one that it does not know.
    if missing := names.keys() - header.tensors.keys():
        raise GgufError(f"the tensor {min(missing)!r} is missing")
    if unknown := header.tensors.keys() - names.keys() - {FACTORS}:
        raise GgufError(f"it has the tensor {min(unknown)!r}, which no {architecture.class_name} has")
    return names


def _config(header: Header, name: str, architecture: _Architecture) -> dict[str, Any]:
    width, heads = (header.require(f"{name}.{key}", int) for key in ("embedding_length", "attention.head_count"))
    if not 0 < heads <= width:
        raise GgufError(f"it claims {heads} heads for {width} numbers")
    size = header.get(f"{name}.attention.key_length", int, width // heads)
    if header.get(f"{name}.rope.dimension_count", int, size) != size:
        raise GgufError("it rotates a part of each head, which the node does not convert")
    key_value_heads = header.get(f"{name}.attention.head_count_kv", int, heads)
    if not 0 < key_value_heads <= heads:
        raise GgufError(f"it claims {key_value_heads} heads of keys for {heads} heads")
    return {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "hidden_size": width,
        "intermediate_size": header.require(f"{name}.feed_forward_length", int),
        "num_hidden_layers": header.require(f"{name}.block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "head_dim": size,
        "max_position_embeddings": header.require(f"{name}.context_length", int),
        "rms_norm_eps": _rounded(header.require(f"{name}.attention.layer_norm_rms_epsilon", float)),
        **rotation(header, theta=_rounded(header.get(f"{name}.rope.freq_base", float, 10000.0)), size=size),
        "vocab_size": header.tensors[_EMBEDDING].shape[0],
        "tie_word_embeddings": _OUTPUT not in header.tensors,
        "bos_token_id": header.get("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": header.get("tokenizer.ggml.eos_token_id", int),
        "pad_token_id": header.get("tokenizer.ggml.padding_token_id", int),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{FLOAT_DIGITS}g}")
