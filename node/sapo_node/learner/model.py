"""Loads a causal language model and its tokenizer from a folder, and converts between text and tokens.

Rules:
- This downloads nothing and runs no code of the folder.
- It encodes prompts and completions separately.
- A peer's text never becomes a special token, nor a token that the model lacks.
- Every error of a folder is a ModelError.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Cache,
    DynamicCache,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import LinearAttentionLayer
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D
from transformers.utils.import_utils import is_kernels_available
from transformers.utils.logging import disable_progress_bar, get_verbosity, set_verbosity, set_verbosity_error

from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import Prompt, chat
from sapo_node.learner.device import AtOnce, at_once, free_memory, pick_device, pick_dtype, set_up, total_memory
from sapo_node.learner.encoding import (
    Lead,
    TemplateFailed,
    Unreadable,
    answer_end_first,
    begins_to_think,
    completion_tokens,
    decoded,
    has_switch,
    lead_of,
    prompt_tokens,
    specials_of,
)
from sapo_node.learner.folder import BUILT_IN, POLICY_DIR, ModelError, fingerprint, model_folder, weight_files
from sapo_node.tasks.answer import ANSWER_END, answer_end
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

__all__ = ["ModelError", "Policy", "Unreadable", "hide_kernels", "load", "load_tokenizer", "outline", "require_room"]

RECURRENT = frozenset(
    {"bamba", "falcon_h1", "granitemoehybrid", "lfm2", "lfm2_moe", "olmo_hybrid", "qwen3_5_text", "qwen3_next"}
)
"""The model types with recurrent layers that the node can train. A test of each shows that reading a text in two parts
gives the probabilities of reading it at once. transformers does not do that for Mamba, Jamba and RWKV."""

_NONE = torch.zeros(0, dtype=torch.long)
_ROUNDING = 0.02
"""Change of a logit by the rounding of bfloat16, relative to the largest, at most. An encoder changes it by more."""
_NAMED = 3
"""Weights that an error names, at most."""
_NUMBER = re.compile(r"\.([0-9]+)\.")
"""The number of a layer in the name of a module, for example model.layers.12.mlp.up_proj."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A model that is ready to generate and to train, its tokenizer, and its special tokens."""

    model: Any
    tokenizer: Any
    device: torch.device
    name: str
    fingerprint: str
    """SHA-256 of the folder's files and of what the adapters are, in hexadecimal."""
    ends: tuple[int, ...]
    """Ids of tokens that end a completion. Training uses the first one."""
    specials: frozenset[int]
    pad: int
    vocabulary: int
    """Number of logits of the model. A tokenizer may have more tokens."""
    context: int
    """Tokens of the longest sequence that the model can take."""
    forbidden: torch.Tensor = _NONE
    """(N,) Ids that no completion holds: special tokens that end none, and ids for which the tokenizer has no text."""
    closing: frozenset[int] = frozenset()
    """Ids of the tokens that can complete the closing tag of an answer: their text has its last character."""
    lead: Lead = Lead()
    """Text before a peer's completion."""
    thinking: bool = False
    """True if a chat template that has the choice begins with a section for thinking, as that of Qwen3."""
    thinks: bool = False
    """True if its chat template ends each prompt inside of thinking."""
    lora: int = 0
    """Rank of the trained adapters; 0 if all weights are trained."""
    lora_layers: int = 0
    """Layers with adapters, counted from the output; 0 if all layers have them."""
    at_once: AtOnce = AtOnce()
    """Bounds of a batch."""

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Return the trained parameters, in an order that depends on the model alone."""
        return sorted((name, value) for name, value in self.model.named_parameters() if value.requires_grad)

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt with system prompt and examples, by the chat template of this model.

        Raises ModelError if the template fails, and Unreadable if the tokenizer fails.
        """
        try:
            ids = prompt_tokens(chat(prompt), self.tokenizer, ends=self.ends, thinking=self.thinking)
        except TemplateFailed as error:
            raise ModelError(f"{self.name}: {error}") from error
        return self._known(ids)

    def closes_answer(self, tokens: Sequence[int]) -> bool:
        """Return whether the last of a completion's tokens completes the closing tag of an answer."""
        # A token has at least one character of the tag, but for the pieces of a character of several bytes.
        tail = self.decode(tokens[-2 * len(ANSWER_END) :]) if tokens and tokens[-1] in self.closing else ""
        return ANSWER_END in tail and answer_end(self.decode(tokens), thinks=self.thinks) is not None

    def encode_foreign(self, text: str) -> list[int] | None:
        """Encode a peer's completion as ordinary text. Return None if the tokenizer gives a special token anyway.

        Raises Unreadable if the tokenizer fails on this text.
        """
        ids = self._known(completion_tokens(self.tokenizer, text, self.lead)[0])
        return None if self.specials.intersection(ids) else ids

    def overlapping(self, text: str, spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Return the positions of the tokens of a peer's completion that overlap any of these character spans.

        The spans come in order and do not overlap. Raises Unreadable if the tokenizer fails on this text.
        """
        _, offsets = completion_tokens(self.tokenizer, text, self.lead)
        ends = [last for _, last in spans]

        def overlaps(begin: int, end: int) -> bool:
            following = bisect_right(ends, begin)
            return following < len(spans) and spans[following][0] < end

        return tuple(place for place, span in enumerate(offsets) if overlaps(*span))

    def _known(self, ids: list[int]) -> list[int]:
        if any(token >= self.vocabulary for token in ids):
            raise Unreadable(f"the tokenizer gives token {max(ids)}, and the model has {self.vocabulary}")
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of completion tokens, without special tokens."""
        return decoded(self.tokenizer, self.specials, tokens)


def load(options: LearnerOptions) -> Policy:
    """Load the model that the options name. Raises ModelError, in one line, if that fails."""
    folder = model_folder(options.model)
    disable_progress_bar()
    device = pick_device(options.device)
    set_up(device)
    with _reading(folder):
        dtype = pick_dtype(options.dtype, device)
        if folder != POLICY_DIR:
            _require_weights(folder, dtype, device)
        model = _prepared(_pretrained(folder, dtype), options)
        # Dropout stays off, also in training: the policy gradient needs the probabilities of the policy that generated.
        model.to(device).eval()
        _require_finite(model, folder)
        _require_causal(model, device)
        policy = _with_tokenizer(_policy(model, folder, options), folder)
        forbidden = policy.forbidden.to(device)
        return replace(
            policy,
            device=device,
            forbidden=forbidden,
            fingerprint=fingerprint(folder, options.lora, options.lora_layers),
        )


def outline(options: LearnerOptions) -> Policy:
    """Return the policy that the options name on the meta device: its shapes, without weights or tokenizer.

    Raises ModelError if the folder describes no model.
    """
    folder = model_folder(options.model)
    with _reading(folder), torch.device("meta"):
        config = _config_of(folder)
        dtype = pick_dtype(options.dtype, pick_device(options.device))
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
        return _policy(_prepared(model, options).eval(), folder, options)


def require_room(options: LearnerOptions) -> None:
    """Raises ModelError if a completion of the most tokens fills the model alone: no prompt would ever fit."""
    folder = model_folder(options.model)
    with _reading(folder):
        context = _context(_config_of(folder).get_text_config())
    if options.max_tokens >= context:
        raise ModelError(
            f"{options.model} takes {context} tokens, prompt and completion together, and --max-tokens "
            f"{options.max_tokens} leaves none for a prompt; give a lower --max-tokens"
        )


@torch.inference_mode()
def _require_causal(model: Any, device: torch.device) -> None:
    """Raises ModelError if what the model says of a token is not finite, or depends on a later token, as that of an
    encoder does.

    transformers loads an encoder such as BERT as a causal language model, with a warning only.
    """
    token = int(model.config.get_text_config().vocab_size) // 2  # the first ones may be padding
    pairs = torch.tensor([[token, token], [token, token - 1]], device=device)
    first, other = (model(pair[None]).logits[0, 0].float() for pair in pairs)
    if not first.logsumexp(-1).isfinite():  # a single logit may be -inf: such a token is never sampled
        raise ModelError(
            f"the output of {type(model).__name__} is not finite, although its weights are; give another model"
        )
    if (first - other).abs().max() > _ROUNDING * first.abs().max():
        raise ModelError(
            f"{type(model).__name__} sees later tokens when it predicts a token, as encoders do; give a decoder, for "
            "example Qwen/Qwen2.5-0.5B-Instruct"
        )


def _policy(model: Any, folder: Path, options: LearnerOptions) -> Policy:
    """Return a policy without a tokenizer."""
    described = model.config.get_text_config()  # a multimodal model has a separate config for its language model
    device = pick_device(options.device)
    layers = (options.lora and options.lora_layers) or int(described.num_hidden_layers)
    return Policy(
        model=model,
        tokenizer=None,
        device=torch.device("cpu"),
        name=folder.name if folder == Path(options.model) else options.model,
        fingerprint="",
        ends=(),
        specials=frozenset(),
        pad=0,
        vocabulary=int(described.vocab_size),
        context=_context(described),
        lora=options.lora,
        lora_layers=options.lora_layers,
        thinking=options.thinking,
        at_once=at_once(described, model.dtype, device.type, total_memory(device), trained_layers=layers),
    )


def _context(described: Any) -> int:
    return int(getattr(described, "max_position_embeddings", 2048))


def _with_tokenizer(policy: Policy, folder: Path) -> Policy:
    tokenizer = load_tokenizer(folder)
    known = range(policy.vocabulary)
    ends = tuple(end for end in _ends_of(policy.model, tokenizer) if end in known)
    if not ends:
        raise ModelError(
            "the tokenizer names no end-of-text token of the model; set eos_token in tokenizer_config.json"
        )
    thinks = begins_to_think(tokenizer, thinking=policy.thinking)
    if policy.thinking and not (thinks or has_switch(tokenizer)):
        raise ModelError(
            f"--thinking changes no prompt of {policy.name}: its chat template has no switch `enable_thinking` or "
            "`thinking`; leave out --thinking"
        )
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id in known else ends[0]
    specials = specials_of(tokenizer, ends)
    texts = set(tokenizer.get_vocab().values()).difference(specials)
    forbidden = torch.tensor(sorted(set(known).difference(texts, ends)), dtype=torch.long)
    return replace(
        policy,
        tokenizer=tokenizer,
        ends=ends,
        pad=pad,
        specials=specials,
        forbidden=forbidden,
        closing=_closing_of(tokenizer),
        lead=lead_of(tokenizer),
        thinks=thinks,
    )


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn every error of reading a folder into a ModelError of one line, and keep transformers from fetching code."""
    hide_kernels()
    try:
        yield
    except LocalError:
        raise
    except SafetensorError as error:
        raise ModelError(f"the weights in {folder} are corrupt ({line_of(error)}); copy them again") from error
    except Exception as error:  # the libraries that read a folder share no class of errors
        raise ModelError(f"{folder} holds no usable causal language model: {line_of(error)}") from error


def hide_kernels() -> None:
    """Have transformers take the package `kernels` for missing. With it transformers fetches code from the hub, for
    some architectures without a setting that names it.
    """
    sys.modules["kernels"] = None  # type: ignore[assignment]
    is_kernels_available.cache_clear()


# The weights of a folder.


def _pretrained(folder: Path, dtype: torch.dtype, **ways: Any) -> Any:
    """Return the model with its weights; `ways` are further arguments for transformers."""
    return AutoModelForCausalLM.from_pretrained(
        folder,
        config=_config_of(folder),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        **ways,
    )


def _require_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> None:
    """Raises ModelError if the folder has no file of weights, if a weight has another size than config.json gives it,
    if the weights do not fit in memory, or if one is missing. The head of tied embeddings is not missing.

    On the meta device transformers compares all sizes and reads no weight. In memory it would read a weight of any size
    first, and fill weights that are missing at random.
    """
    if not weight_files(folder):
        raise ModelError(
            f"{folder} has no weights in the safetensors format, and the node reads no other; to convert "
            "pytorch_model.bin, load the model with transformers and call save_pretrained with a new folder"
        )
    before = get_verbosity()
    set_verbosity_error()  # it reports on weights again when it reads them
    try:
        model, found = _pretrained(
            folder, dtype, device_map="meta", ignore_mismatched_sizes=True, output_loading_info=True
        )
    finally:
        set_verbosity(before)
    for name, held, described in found["mismatched_keys"]:
        raise ModelError(
            f"{folder} holds {name} of the size {list(held)}, and its config.json describes {list(described)}; give "
            "another model"
        )
    needed, free = sum(value.nbytes for value in model.parameters()), free_memory(device)
    if needed > free:
        raise ModelError(
            f"the weights that {folder} describes take {needed:,} bytes, and {device} has {free:,} free; give a "
            "smaller model"
        )
    if missing := sorted(found["missing_keys"]):
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise ModelError(
            f"{folder} lacks weights that its config.json describes: {', '.join(missing[:_NAMED])}{more}; copy all "
            "files of the model again, or give another model"
        )


def _require_finite(model: Any, folder: Path) -> None:
    """Raises ModelError if a weight is infinite or no number. A prompt that meets it would end the node in a round."""
    for name, value in model.named_parameters():
        # The least and the largest of a weight are no numbers if one of its values is none. This copies no weight.
        if value.numel() and not all(bound.isfinite() for bound in torch.aminmax(value.detach())):
            raise ModelError(
                f"{folder} holds values in {name} that are infinite or no numbers; copy all files of the model again, "
                "or give another model"
            )


def _config_of(folder: Path) -> Any:
    """Return the settings of the model. Raises ModelError if they name foreign code for attention or experts."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # An argument of from_pretrained does not override the choice in the folder, so this checks the choice itself.
    for each in _with_parts(config):
        for choice in ("_attn_implementation", "_experts_implementation"):
            if getattr(each, choice, None) not in BUILT_IN:
                raise ModelError(f"{folder} chooses code by {choice}; give another model")
    return config


def _with_parts(config: Any) -> Iterator[Any]:
    """Yield the settings of a model, and the settings of each model that it contains."""
    yield config
    for part in vars(config).values():
        if isinstance(part, PretrainedConfig):
            yield from _with_parts(part)


# What is trained of a model.


def _prepared(model: Any, options: LearnerOptions) -> Any:
    """Return the model with adapters and gradient checkpointing, if the options ask for them. Raises ModelError.

    Of a model that also reads images or sound, only what computes text is trained.
    """
    _require_known_state(model)
    if _is_multimodal(model):
        _freeze_all_but_text(model)
    if options.gradient_checkpointing:
        _forget_activations(model)
    return _with_adapters(model, options) if options.lora else model


def _require_known_state(model: Any) -> None:
    """Raises ModelError unless the model is a decoder with attention in every layer, or one of RECURRENT."""
    config = model.config.get_text_config()
    # transformers has no public name for the property.
    recurrent = getattr(model, "_is_stateful", False) or is_recurrent(config)
    if "logits_to_keep" not in signature(model.forward).parameters or (
        recurrent and config.model_type not in RECURRENT
    ):
        raise ModelError(
            f"{type(model).__name__} is a decoder that the node cannot train. Give a model with attention in every "
            f"layer, for example Qwen/Qwen2.5-0.5B-Instruct, or one of these types with recurrent layers: "
            f"{', '.join(sorted(RECURRENT))}"
        )


def is_recurrent(config: Any) -> bool:
    """Return whether a model of these settings has recurrent layers."""
    return any(isinstance(layer, LinearAttentionLayer) for layer in DynamicCache(config=config).layers)


def _is_multimodal(model: Any) -> bool:
    return model.config.get_text_config() is not model.config


def _freeze_all_but_text(model: Any) -> None:
    model.requires_grad_(requires_grad=False)
    for part in (model.get_decoder(), model.get_output_embeddings()):
        part.requires_grad_(requires_grad=True)


def _forget_activations(model: Any) -> None:
    """Have each layer store only its input in training, and compute its activations again in the backward pass."""
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(f"{type(model).__name__} has no gradient checkpointing; turn gradient_checkpointing off")
    for layer in layers:
        # The switch of transformers needs training mode, which turns dropout on, and it turns the cache off.
        layer.forward = partial(_run_forgetful, layer.forward)


def _run_forgetful(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    caches = [value for value in (*args, *kwargs.values()) if isinstance(value, Cache)]
    layers = [layer for cache in caches for layer in cache.layers]
    before = [dict(vars(layer)) for layer in layers]

    def run(*args: Any, **kwargs: Any) -> Any:
        # A layer writes to the cache. So restore the cache before the layer computes a second time.
        for layer, state in zip(layers, before, strict=True):
            vars(layer).update(state)
        return forward(*args, **kwargs)

    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _with_adapters(model: Any, options: LearnerOptions) -> Any:
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - takes a second that a model without adapters need not wait

    # Adapters start from a fixed seed. So a restart before the first checkpoint starts from the same weights.
    torch.manual_seed(0)
    config = LoraConfig(
        r=options.lora,
        lora_alpha=2 * options.lora,
        lora_dropout=0.0,
        target_modules=_adapted(model, options.lora_layers),
        exclude_modules=_without_adapters(model) or None,
        task_type="CAUSAL_LM",
    )
    # The trainer holds what it updates in fp32, so the adapters compute in the format of the model.
    return get_peft_model(model, config, autocast_adapter_dtype=False)


def _without_adapters(model: Any) -> list[str]:
    """Return the linear modules that can have no adapter, by name."""
    if model.config.model_type == "falcon_h1":
        return ["out_proj"]  # peft refuses adapters there, because of a kernel that would pass them over
    # The routers of Llama 4 and of PhiMoE are linear modules, and choose experts in the same call.
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and not _is_linear(module)]


def _is_linear(module: nn.Linear) -> bool:
    """Return whether the module is a matrix product and nothing else. That of Falcon is, in a class of its own."""
    if type(module) is nn.Linear:
        return True
    output = module(module.weight.new_zeros(2, module.in_features))
    return isinstance(output, torch.Tensor) and output.shape == (2, module.out_features)


def _adapted(model: Any, top_layers: int) -> list[str] | str:
    """Return the modules that have adapters, by name: the linear ones of the last layers, or of all layers if
    `top_layers` is 0. Nothing below them needs a backward pass.
    """
    if not top_layers and not _is_multimodal(model):
        return "all-linear"
    first = int(model.config.get_text_config().num_hidden_layers) - top_layers if top_layers else 0
    text = set(model.get_decoder().modules())
    linear = [
        name for name, module in model.named_modules() if module in text and isinstance(module, (nn.Linear, Conv1D))
    ]
    numbered = ((name, _NUMBER.search(name)) for name in linear)
    return [name for name, number in numbered if number and int(number[1]) >= first]


# Its tokenizer.


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a folder. Raises ModelError."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(f"{folder} has no tokenizer.json; save the model's fast tokenizer beside its weights")
    try:
        # AutoTokenizer would build the tokenizer of the model family instead of using the file unchanged. This names
        # the file, because the settings of the folder could name another one.
        return PreTrainedTokenizerFast.from_pretrained(folder, tokenizer_file=str(file), local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a broken file
        raise ModelError(f"the tokenizer of {folder} is broken: {line_of(error)}") from error


def _closing_of(tokenizer: Any) -> frozenset[int]:
    """Return the ids of the tokens with the last character of ANSWER_END, which is the same in every vocabulary."""
    return frozenset(token for text, token in tokenizer.get_vocab().items() if ANSWER_END[-1] in text)


def _ends_of(model: Any, tokenizer: Any) -> Sequence[int]:
    """Return the ids that end a completion: first those that end an answer in the chat template, then that of the
    tokenizer, then those of the model's generation settings.
    """
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    return answer_end_first([end for end in [tokenizer.eos_token_id, *listed] if end is not None], tokenizer)
