"""Writes what a node has learnt as an ordinary Hugging Face folder; a program of its own, since torch is in it.

Reads the newest good checkpoint and changes nothing where it lies, so it may run beside the node. Adapters are merged
into the weights, so that whoever loads the folder needs nothing else. AutoTokenizer and AutoModelForCausalLM give the
tokens that the node gives, which is tried before the folder gets its name.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

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

from sapo_node.groups.codec import from_json
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner import checkpoint
from sapo_node.learner.folder import TOKENIZER_FILES, line_of, model_folder, require_new_folder
from sapo_node.learner.model import Policy, load
from sapo_node.learner.probe import require_readable
from sapo_node.learner.trainer import Trainer
from sapo_protocol.errors import LocalError

_UNFINISHED = ".unfinished"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_OF_LOADING = frozenset(
    {"is_local", "local_files_only", "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"}
)
"""Keys of tokenizer_config.json that say how and where somebody loaded it."""
_SHARED_WITH_LLAMA = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "use_cache"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings", "rope_parameters", "attention_dropout"),
)


class Exported(NamedTuple):
    """The step of the weights, and what to know about the folder, if anything."""

    step: int
    note: str | None


def export(options: LearnerOptions, output: Path) -> Exported:
    """Write the folder, which must not be there. Raises LocalError, and leaves nothing behind then."""
    require_new_folder(output)
    require_readable(options)
    trainer = Trainer(load(options), options)
    if not checkpoint.peek(trainer, Path(options.checkpoints)):
        raise LocalError(
            f"there is no good checkpoint in {options.checkpoints} yet: a node writes one every ten rounds, "
            f"and when it stops"
        )
    unfinished = output.with_name(output.name + _UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        note = _write(trainer.policy, model_folder(options.model), unfinished)
        unfinished.rename(output)
    except (OSError, SafetensorError) as error:
        raise LocalError(f"cannot write {output} ({line_of(error)}); free some space there") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Exported(trainer.step, note)


def _write(policy: Policy, source: Path, folder: Path) -> str | None:
    """Write the model of a policy whose folder is `source`; returns what to know about it, if anything."""
    model = policy.model.merge_and_unload() if policy.lora else policy.model
    # The folder stops a text where the node does, and chooses tokens by the model's probabilities alone.
    model.generation_config = GenerationConfig(eos_token_id=list(policy.ends), pad_token_id=policy.pad)
    folder.mkdir()
    _write_tokenizer(source, folder)
    if _is_qwen2(model) and not _builds_the_same(Qwen2Tokenizer, folder, policy):
        # For a Qwen2 model AutoTokenizer builds Qwen's own splitting, whatever tokenizer.json holds.
        model = _as_llama(model)
    model.save_pretrained(folder)
    if _builds_the_same(AutoTokenizer, folder, policy):
        return None
    return "AutoTokenizer builds another tokenizer for it; load its own by PreTrainedTokenizerFast.from_pretrained"


def _write_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer, which no training changes, under the class that takes tokenizer.json as it is."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    path = source / _TOKENIZER_CONFIG
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept = {name: value for name, value in settings.items() if name not in _OF_LOADING}
    kept["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / _TOKENIZER_CONFIG).write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _builds_the_same(kind: Any, folder: Path, policy: Policy) -> bool:
    """Whether this class builds the node's tokenizer from the folder."""
    try:
        return _encoding(kind.from_pretrained(folder, local_files_only=True)) == _encoding(policy.tokenizer)
    except Exception:  # noqa: BLE001 - a tokenizer of another class may fail on these files in any way
        return False


def _encoding(tokenizer: Any) -> str:
    """Return all of a tokenizer that decides which tokens a text becomes."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    deciding = {
        name: parts[name] for name in ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")
    }
    # Offsets say where in the text a token stands.
    return json.dumps(deciding, sort_keys=True).replace('"trim_offsets": false', '"trim_offsets": true')


def _is_qwen2(model: Any) -> bool:
    """Whether it is a Qwen2 with nothing that a Llama lacks."""
    return isinstance(model, Qwen2ForCausalLM) and set(model.config.layer_types) == {"full_attention"}


def _as_llama(model: Any) -> Any:
    """Return the same network as a Llama: a Qwen2 is a Llama with biases, but for that of the last projection."""
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


def main(options: str, output: str) -> int:
    """Options as JSON; prints the step and the note as JSON, or says on stderr why there is none."""
    try:
        exported = export(from_json(LearnerOptions, json.loads(options)), Path(output))
    except LocalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(exported._asdict()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
