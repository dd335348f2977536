"""A causal language model and its tokenizer, loaded from a folder, and the text discipline around them.

Guarantees: nothing is downloaded and no code of the folder runs; prompts and completions are encoded apart; a peer's
text never becomes a special token.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, Cache, PreTrainedTokenizerFast
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.logging import disable_progress_bar

from sapo_node.learner.hub import cached
from sapo_node.learner.messages import LearnerOptions, is_hub_name
from sapo_node.prompt import SYSTEM
from sapo_node.seed import POLICY_DIR
from sapo_protocol.errors import LocalError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelError(LocalError):
    """The model folder cannot be used. No restart helps."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A model ready to generate and to train, and what belongs to its text."""

    model: Any
    tokenizer: Any
    device: torch.device
    name: str
    fingerprint: str
    """SHA-256 of the folder's files and of how they are trained, in hexadecimal."""
    ends: tuple[int, ...]
    """Token ids that end a completion; the first is the one that is trained."""
    specials: frozenset[int]
    pad: int
    vocabulary: int
    context: int
    """Longest sequence the model can take, in tokens."""

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Return the trained parameters, in an order that depends on the model alone."""
        return sorted((name, value) for name, value in self.model.named_parameters() if value.requires_grad)

    def prompt(self, question: str) -> list[int]:
        """Return the ids of the whole prompt for a question, by this model's own template."""
        if not self.tokenizer.chat_template:
            return self._plain(f"{SYSTEM}\n\n{question.strip()}\n")
        try:
            text = self._chat([{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}])
        except TemplateError:
            # Some templates know no system role.
            text = self._chat([{"role": "user", "content": f"{SYSTEM}\n\n{question}"}])
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _chat(self, messages: list[dict[str, str]]) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=True)["input_ids"]
        # A tokenizer that closes every text with an end would have the model answer a finished text.
        return ids[:-1] if ids and ids[-1] in self.ends else ids

    def encode_foreign(self, text: str) -> list[int] | None:
        """Encode a peer's completion as ordinary text; None where the tokenizer insists on a special token."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return None if self.specials.intersection(ids) else ids

    def overlapping(self, text: str, spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Return the places of the tokens of a peer's completion that hold any of these characters."""
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
        return tuple(
            place
            for place, (begin, end) in enumerate(encoded["offset_mapping"])
            if any(begin < last and first < end for first, last in spans)
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of completion tokens, without special tokens."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def load(options: LearnerOptions) -> Policy:
    """Load the model that the options name. Raises ModelError, in one line, where that cannot work."""
    folder = _folder(options.model)
    disable_progress_bar()
    device = pick_device(options.device)
    tokenizer = _load_tokenizer(folder)
    with _reading(folder):
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=_DTYPES[options.dtype],
        )
    model = _prepared(model, options)
    model.to(device)
    # Dropout stays off: a policy gradient wants the policy that generated.
    model.eval()
    ends = _ends(model, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    return Policy(
        model=model,
        tokenizer=tokenizer,
        device=device,
        name=folder.name if folder == Path(options.model) else options.model,
        fingerprint=fingerprint(folder, options.lora),
        ends=ends,
        specials=frozenset([*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder]),
        pad=pad,
        vocabulary=int(_text_config(model).vocab_size),
        context=int(getattr(_text_config(model), "max_position_embeddings", 2048)),
    )


def outline(options: LearnerOptions) -> Policy:
    """Return the policy that the options name on the meta device: its shapes, without weights or tokenizer.

    Raises ModelError where the folder describes no model.
    """
    folder = _folder(options.model)
    with _reading(folder), torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model = AutoModelForCausalLM.from_config(config, dtype=_DTYPES[options.dtype], trust_remote_code=False)
        model = _prepared(model, options)
    return Policy(
        model=model.eval(),
        tokenizer=None,
        device=torch.device("cpu"),
        name=options.model,
        fingerprint="",
        ends=(),
        specials=frozenset(),
        pad=0,
        vocabulary=_text_config(model).vocab_size,
        context=0,
    )


def pick_device(wanted: str) -> torch.device:
    """Return the device asked for, or the best one there is for `auto`. Raises ModelError where it is missing."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return torch.device(next(name for name, found in there.items() if found))
    if not there.get(wanted):
        raise ModelError(f"device {wanted} is not there; torch sees {', '.join(n for n, f in there.items() if f)}")
    return torch.device(wanted)


def fingerprint(folder: Path, lora: int) -> str:
    """Return the SHA-256 over the model's files and the adapters' rank: what a checkpoint can be put back into."""
    total = hashlib.sha256(f"lora={lora}".encode())
    for path in sorted([folder / "config.json", folder / "tokenizer.json", *folder.glob("*.safetensors")]):
        if path.is_file():
            with path.open("rb") as file:
                total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def _folder(model: str) -> Path:
    if model == "seed":
        return POLICY_DIR
    if is_hub_name(model):
        folder = cached(model)
        if folder is None:
            raise ModelError(
                f"{model} is no folder, and the cache of the Hugging Face hub lacks it; "
                f"`sapo-node start --model {model}` downloads it"
            )
        return folder
    if not Path(model).is_dir():
        raise ModelError(f"model folder {model} does not exist; give a Hugging Face model folder, a hub name or `seed`")
    return Path(model)


def _text_config(model: Any) -> Any:
    """Return the settings of the language model, which those of a model for several media hold within."""
    return model.config.get_text_config()


def _load_tokenizer(folder: Path) -> Any:
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder} has no tokenizer.json; save the model's fast tokenizer beside its weights")
    try:
        # Not AutoTokenizer: it rebuilds the tokenizer of a model family instead of taking the file as it is.
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a broken file
        raise ModelError(f"the tokenizer of {folder} is broken: {_line(error)}") from error


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Whatever is wrong with a folder is a ModelError in one line."""
    try:
        yield
    except SafetensorError as error:
        raise ModelError(f"the weights in {folder} are corrupt ({_line(error)}); copy them again") from error
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelError(f"{folder} holds no usable causal language model: {_line(error)}") from error


def _require_attention(model: Any) -> None:
    """Raises ModelError for a model whose memory is not a cache of keys and values that rows can share."""
    # The library has no public name for it.
    if getattr(model, "_is_stateful", False) or "logits_to_keep" not in signature(model.forward).parameters:
        raise ModelError(f"{type(model).__name__} is not a decoder with attention alone; give another architecture")


def _prepared(model: Any, options: LearnerOptions) -> Any:
    """Return the model with the adapters and the way of keeping activations that the options ask for."""
    _require_attention(model)
    if options.gradient_checkpointing:
        _forget_activations(model)
    return _with_adapters(model, options.lora) if options.lora else model


def _forget_activations(model: Any) -> None:
    """Have each layer keep its input alone when it is trained, and compute the rest again in the backward pass."""
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(f"{type(model).__name__} knows no gradient checkpointing; leave it off")
    for layer in layers:
        # The library's own switch works in training mode only, which turns dropout on, and takes the cache away.
        layer.forward = partial(_run_forgetful, layer.forward)


def _run_forgetful(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    caches = [value for value in (*args, *kwargs.values()) if isinstance(value, Cache)]
    layers = [layer for cache in caches for layer in cache.layers]
    before = [dict(vars(layer)) for layer in layers]

    def run(*args: Any, **kwargs: Any) -> Any:
        # A layer writes to the cache: the second time it must find there what it found the first time.
        for layer, state in zip(layers, before, strict=True):
            vars(layer).update(state)
        return forward(*args, **kwargs)

    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _with_adapters(model: Any, rank: int) -> Any:
    # The adapters start from a fixed state, so that a restart before the first checkpoint repeats exactly.
    torch.manual_seed(0)
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(model, config)


def _ends(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end a text: the tokenizer's first, then those of the model's generation settings."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    found = dict.fromkeys(end for end in [tokenizer.eos_token_id, *listed] if end is not None)
    if not found:
        raise ModelError("the tokenizer names no end-of-text token; set eos_token in tokenizer_config.json")
    return tuple(found)


def _line(error: BaseException) -> str:
    """Return an error's first line, cut to a readable length."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
