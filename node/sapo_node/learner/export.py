"""Writes what a node has learnt as a Hugging Face folder. `sapo-node model export` runs it as a child, due to torch.

This reads the averaged weights of the newest good checkpoint, or the best weights. It changes no file of the node, so
the node may be running. It merges adapters into the weights, so that the folder is complete, or writes the adapters
alone. It writes to a temporary folder and checks that AutoTokenizer builds the node's tokenizer from it. Then it
renames the folder to its final name.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import LearnerOptions, is_hub_name
from sapo_node.learner import checkpoint
from sapo_node.learner.card import Weights, model_card
from sapo_node.learner.export_client import Exported, ExportRequest
from sapo_node.learner.folder import MAX_SETTINGS_BYTES, TOKENIZER_FILES, model_folder, require_new_folder
from sapo_node.learner.model import Policy, load
from sapo_node.learner.trainer import Trainer
from sapo_protocol.errors import LocalError
from sapo_protocol.files import read_json
from sapo_protocol.printable import line_of

_UNFINISHED = ".unfinished"
_CARD = "README.md"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_OF_LOADING = frozenset(
    {"is_local", "local_files_only", "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"}
)
"""Keys of tokenizer_config.json that describe how a tokenizer was loaded, not the tokenizer."""
_SHARED_WITH_LLAMA = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "use_cache"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings", "rope_parameters", "attention_dropout"),
)


def export(request: ExportRequest) -> Exported:
    """Write the folder, which must not exist. If this fails, it raises LocalError and leaves no file behind."""
    options, output = request.options, Path(request.output)
    require_new_folder(output)
    if request.adapter_only and not options.lora:
        raise LocalError("the node trains all weights, so there are no adapters; leave out --adapter-only")
    trainer = Trainer(load(options), options)
    step = _read_best(trainer, options) if request.best else _read_newest(trainer, options)
    unfinished = output.with_name(output.name + _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with trainer.averaged():
            card = model_card(request.facts, _contents(trainer.policy, request, step))
            note = _write(trainer.policy, request, unfinished)
        # Last: peft writes a card of its own.
        (unfinished / _CARD).write_text(card, encoding="utf-8")
        for file in unfinished.iterdir():
            shutil.copymode(unfinished / _CARD, file)  # safetensors lets nobody else read what it writes
        unfinished.rename(output)
    except (OSError, SafetensorError) as error:
        raise LocalError(f"cannot write {output} ({line_of(error)}); free some space there") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Exported(step, note)


def _contents(policy: Policy, request: ExportRequest, step: int) -> Weights:
    return Weights(
        step=step,
        parameters=sum(value.numel() for value in policy.model.parameters()),
        dtype=str(policy.model.dtype).removeprefix("torch."),
        lora=policy.lora,
        adapter_only=request.adapter_only,
        best=request.best,
    )


def _read_newest(trainer: Trainer, options: LearnerOptions) -> int:
    if not checkpoint.peek(trainer, Path(options.checkpoints)):
        raise LocalError(
            f"there is no good checkpoint in {options.checkpoints} yet: a node writes one every ten rounds, "
            f"and when it stops"
        )
    return trainer.step


def _read_best(trainer: Trainer, options: LearnerOptions) -> int:
    step = checkpoint.peek_best(trainer, Path(options.checkpoints))
    if step is None:
        raise LocalError(
            f"there are no best weights in {options.checkpoints}: a node keeps them when it evaluates (`eval_every`)"
        )
    return step


def _write(policy: Policy, request: ExportRequest, folder: Path) -> str | None:
    """Write model or adapters, and the tokenizer. Return a note about the new folder, if any."""
    folder.mkdir()
    _write_tokenizer(model_folder(request.options.model), folder)
    if request.adapter_only:
        _write_adapters(policy, _base(request.options.model), folder)
    else:
        _write_model(policy, folder)
    if _builds_the_same(AutoTokenizer, folder, policy):
        return None
    return "AutoTokenizer builds another tokenizer for it; use PreTrainedTokenizerFast.from_pretrained instead"


def _base(model: str) -> str:
    """Return where transformers finds the base model: its name on the hub, or its folder on this machine."""
    return model if is_hub_name(model) else str(model_folder(model).resolve())


def _write_adapters(policy: Policy, base: str, folder: Path) -> None:
    for config in policy.model.peft_config.values():
        config.base_model_name_or_path = base  # of a model of the hub, peft put its folder in the cache there
    # Embeddings are not trained. To look at them peft would ask the hub for the model's settings.
    policy.model.save_pretrained(folder, save_embedding_layers=False)


def _write_model(policy: Policy, folder: Path) -> None:
    model = policy.model.merge_and_unload() if policy.lora else policy.model
    # Stop a text where the node stops it, and sample from the model's unchanged probabilities.
    model.generation_config = GenerationConfig(
        eos_token_id=list(policy.ends), pad_token_id=policy.pad, do_sample=True, temperature=1.0, top_k=0, top_p=1.0
    )
    if _is_qwen2(model) and not _builds_the_same(Qwen2Tokenizer, folder, policy):
        # For a Qwen2 model AutoTokenizer replaces the pre-tokenizer of tokenizer.json by that of Qwen.
        model = _as_llama(model)
    model.save_pretrained(folder)


def _write_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer. Set its class to PreTrainedTokenizerFast, which uses tokenizer.json unchanged."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    path = source / _TOKENIZER_CONFIG
    settings = read_json(path, MAX_SETTINGS_BYTES, "tokenizer's settings") if path.is_file() else {}
    kept = {name: value for name, value in settings.items() if name not in _OF_LOADING}
    kept["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / _TOKENIZER_CONFIG).write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _builds_the_same(kind: Any, folder: Path, policy: Policy) -> bool:
    """Return whether the class `kind` builds the node's tokenizer from the folder."""
    try:
        return _encoding(kind.from_pretrained(folder, local_files_only=True)) == _encoding(policy.tokenizer)
    except Exception:  # noqa: BLE001 - a tokenizer of another class may fail on these files in any way
        return False


def _encoding(tokenizer: Any) -> str:
    """Return the parts of a tokenizer that decide which tokens a text becomes."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    deciding = {
        name: parts[name] for name in ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")
    }
    # `trim_offsets` changes only the positions of tokens in the text, so ignore it.
    return json.dumps(deciding, sort_keys=True).replace('"trim_offsets": false', '"trim_offsets": true')


def _is_qwen2(model: Any) -> bool:
    """Return whether the model is a Qwen2 without sliding-window attention, which a Llama lacks."""
    return isinstance(model, Qwen2ForCausalLM) and set(model.config.layer_types) == {"full_attention"}


def _as_llama(model: Any) -> Any:
    """Return the same network as a Llama with biases. A Qwen2 has no bias in `o_proj`, so there the bias is 0."""
    shared = {name: getattr(model.config, name) for name in _SHARED_WITH_LLAMA}
    with torch.device("meta"):
        llama = LlamaForCausalLM(LlamaConfig(**shared, attention_bias=True))
    weights = model.state_dict()
    for name, value in llama.state_dict().items():
        if name.endswith("o_proj.bias"):
            weights[name] = torch.zeros(value.shape, dtype=model.dtype)
    llama.load_state_dict(weights, assign=True)
    llama.tie_weights()
    llama.generation_config = model.generation_config
    return llama


def main(request: str) -> int:
    """Export as an ExportRequest in JSON asks. Print an Exported as JSON, or an error on stderr."""
    try:
        exported = export(from_json(ExportRequest, json.loads(request)))
    except LocalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(to_json(exported)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
