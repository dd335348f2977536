"""Loads a causal language model and its tokenizer from a folder, and converts between text and tokens.

Rules:
- This downloads nothing and runs no code of the folder.
- It encodes prompts and completions separately.
- A peer's text never becomes a special token, nor a token that the model lacks.
- Every error of a folder is a ModelError.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.utils.import_utils import is_kernels_available
from transformers.utils.logging import disable_progress_bar

from sapo_node.groups.answer import ANSWER_END, answer_end
from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import Prompt, chat
from sapo_node.learner.at_once import AtOnce, at_once
from sapo_node.learner.device import pick_device, pick_dtype, set_up, total_memory
from sapo_node.learner.encoding import (
    Lead,
    TemplateFailed,
    Unreadable,
    begins_to_think,
    completion_tokens,
    decoded,
    has_switch,
    lead_of,
    prompt_tokens,
    specials_of,
)
from sapo_node.learner.folder import POLICY_DIR, ModelError, fingerprint, model_folder
from sapo_node.learner.prepare import prepared
from sapo_node.learner.pretrained import config_of, pretrained, require_finite, require_weights
from sapo_node.learner.tokenizer import closing_of, ends_of, load_tokenizer
from sapo_protocol.errors import LocalError
from sapo_protocol.printable import line_of

__all__ = ["ModelError", "Policy", "Unreadable", "load", "outline", "require_room"]

_NONE = torch.zeros(0, dtype=torch.long)
_ROUNDING = 0.02
"""What bfloat16 may change of a logit, relative to the largest. An encoder changes it by more."""


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
    """What is read before the text of a peer's completion."""
    thinking: bool = False
    """Whether a chat template that has the choice begins with a section for thinking, as that of Qwen3."""
    thinks: bool = False
    """Whether its chat template ends each prompt inside of thinking."""
    lora: int = 0
    """Rank of the trained adapters; 0 if all weights are trained."""
    lora_layers: int = 0
    """Layers with adapters, counted from the output; 0 if all layers have them."""
    at_once: AtOnce = AtOnce()
    """How much of it is computed at once."""

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
            require_weights(folder, dtype, device)
        model = prepared(pretrained(folder, dtype), options)
        # Dropout stays off, also in training: the policy gradient needs the probabilities of the policy that generated.
        model.to(device).eval()
        require_finite(model, folder)
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
        config = config_of(folder)
        dtype = pick_dtype(options.dtype, pick_device(options.device))
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
        return _policy(prepared(model, options).eval(), folder, options)


def require_room(options: LearnerOptions) -> None:
    """Raises ModelError if a completion of the most tokens fills the model alone: no prompt would ever fit."""
    folder = model_folder(options.model)
    with _reading(folder):
        context = _context(config_of(folder).get_text_config())
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
    ends = tuple(end for end in ends_of(policy.model, tokenizer) if end in known)
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
        closing=closing_of(tokenizer),
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
