"""Messages between the main process and the learner, which `codec` writes as JSON. Imports neither torch nor trio."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, get_args

from sapo_node.groups.codec import (
    Advantage,
    Amount,
    Count,
    Entropy,
    Finite,
    LearningRate,
    LogProb,
    Norm,
    Record,
    Share,
    TextLogProb,
    TokenId,
    Total,
)
from sapo_node.groups.levels import Levels
from sapo_node.groups.prompt import Example, Prompt
from sapo_protocol.errors import LocalError

MIN_TOKEN_PROB = 1e-3
"""Least probability of each token before the answer, if this policy writes no less probable ones itself."""
MIN_TEXT_PROB = 1e-9
"""Least probability of all tokens before the answer together, if this policy writes no less probable texts itself.
However a tokenizer cuts a text, a policy gives the text about the same probability."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least log-probabilities of the text before the answer under this policy, and the most tokens of the whole."""

    token: LogProb = math.log(MIN_TOKEN_PROB)
    """The least log-probability of each token."""
    text: TextLogProb = math.log(MIN_TEXT_PROB)
    """The least log-probability of all tokens together."""
    tokens: Count | None = None
    """The most tokens of the completion in this model's tokenizer, without the end; None for any number."""


_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Return whether `model` names a model of the Hugging Face hub. An existing folder with such a name is a folder."""
    return _HUB_NAME.fullmatch(model) is not None and not is_gguf(model) and not Path(model).is_dir()


def is_gguf(model: str) -> bool:
    """Return whether `model` names a GGUF file. An existing folder with such a name is a folder."""
    return model.lower().endswith(".gguf") and not Path(model).is_dir()


def trained_part(lora: int, lora_layers: int) -> str:
    """Return what of a model is trained, in words."""
    layers = f"the last {lora_layers} layers" if lora_layers else "all layers"
    return f"adapters of rank {lora} in {layers}" if lora else "all weights"


Finish = Literal["stop", "length"]
Source = Literal["local", "replay", "external"]
SOURCES: tuple[Source, ...] = get_args(Source)
ExternalObjective = Literal["positive-only", "on-policy"]
Dtype = Literal["auto", "float32", "bfloat16"]
Auto = Literal["auto"]
FilterName = Literal["one-answer", "baseline", "n-gram", "length", "equation", "min-token-prob", "answer-likelihood"]
FILTERS: tuple[FilterName, ...] = tuple(name for name in get_args(FilterName) if name != "one-answer")  # always used
FOLLOWS = 0.05
"""`answer-likelihood`: least probability of the answer, given the text before it."""


def reason_of(name: str) -> str:
    """The reason of what a filter rejected, as the journal shows it and as ablations name the filter."""
    return f"{name} filter"


class Refusal(StrEnum):
    """Reasons for which a group of the batch was not trained on."""

    NO_ROOM = "prompt too long for the model"
    TOO_LONG = "completion longer than max_tokens"
    SPECIAL = "completion encodes to a special token"
    UNREADABLE = "tokenizer failed on a text"
    OUTSIDE = "token id outside the vocabulary"
    NOT_FINITE = "loss or gradient not finite"
    """This reason holds for the whole batch."""
    KILLED_LEARNER = "batch killed the learner"
    """Too often, so the node gave the whole batch up."""


class RequestError(LocalError):
    """A request that the learner cannot serve. It stays alive, and its step does not move."""


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """The options of the learner process."""

    checkpoints: str
    """Folder of this node's checkpoints; made when missing."""
    model: str = "seed"
    """`seed` for the packaged policy, a fetched model, a model folder, a GGUF file, or a name in the hub's cache."""
    lora: int = 0
    """Rank of LoRA adapters; 0 trains all weights."""
    lora_layers: int = 0
    """Layers with adapters, counted from the output; 0 gives all layers adapters."""
    thinking: bool = False
    """True if a chat template with that choice begins with a section for thinking."""
    dtype: Dtype = "float32"
    """The model computes in it; what is trained is fp32. `auto`: bfloat16 if the device computes in it, or float32."""
    gradient_checkpointing: bool = False
    device: str = "auto"
    threads: int = 0
    """CPU threads of torch; 0 leaves one core to the others."""
    learning_rate: float = 1e-4
    warmup: int = 0
    """Steps over which the learning rate grows to its full value."""
    decay_rounds: int = 0
    """Steps after the warm-up at which the learning rate is half of its full value; 0 keeps it constant."""
    groups: int = 8
    """Groups of a full round, I + J: with `completions` and `max_tokens` the loss's constant denominator."""
    completions: int = 8
    max_tokens: int = 80
    """Longest completion, own or external, in tokens of this model."""
    max_completion_bytes: int = 1024
    filters: tuple[str, ...] = ()
    """The filters of FILTERS that the node applies to external correct completions. The learner applies
    `min-token-prob` and `answer-likelihood`, and `length` to tokens."""
    read_only: bool = False
    """The checkpoints are those of a node that may be running: the newest is read, and all of them left as they are."""
    server: str = ""
    """Address of an inference server that samples the completions of rounds; empty if the learner samples them."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion. Its `tokens` are this model's own ids without the end; None if it came from a peer."""

    text: str
    finish: Finish
    tokens: tuple[TokenId, ...] | None = None
    logprobs: tuple[LogProb, ...] = ()
    """The log-probability with which each of `tokens` was sampled; empty if it is not known."""
    silent: tuple[tuple[Count, Count], ...] = ()
    """Spans of a peer's text that are masked: the first character of each, and the one behind its last."""
    end: tuple[TokenId, LogProb] | None = None
    """The end token that this model sampled, and the log-probability with which it did; None if it sampled none."""
    tokenizer: str = ""
    """The tokenizer whose ids `tokens` are, as a foreign trainer names it; empty for that of the learner."""


@dataclass(frozen=True, slots=True)
class TrainGroup:
    """The completions of one prompt with their advantages, in the same order.

    Raises RequestError if its parts do not fit together.
    """

    source: Source
    prompt: str
    weight: Share
    """Scales the group in the loss."""
    advantages: tuple[Advantage, ...]
    completions: tuple[Sampled, ...]
    id: str = ""
    """The id of the group in the report; empty for its number in the request, from 0."""
    examples: tuple[Example, ...] = ()
    """The worked examples that this model read before the prompt, or would have read."""
    levels: Levels | None = None
    """The levels of the completions; None if they are not known."""
    stands_in: str = ""
    """The id of the group whose place this one takes if nothing of that group can be trained on; empty for a group
    with a place of its own."""
    bounds: Bounds = Bounds()
    """The learner applies them to the correct completions of a peer's group."""

    def __post_init__(self) -> None:
        if len(self.advantages) != len(self.completions):
            raise RequestError("a group has another number of advantages than of completions")
        if self.source != "external" and any(completion.tokens is None for completion in self.completions):
            raise RequestError("a local completion lacks its tokens")


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A request to sample completions. Raises RequestError if a number is out of bounds."""

    prompts: tuple[Prompt, ...]
    completions: int
    max_tokens: int
    seed: int
    temperature: float = 1.0
    averaged: bool = False
    """True to sample from the averaged weights, which are evaluated; False for those that train."""

    def __post_init__(self) -> None:
        if self.completions < 1 or self.max_tokens < 1 or self.temperature <= 0:
            raise RequestError("completions, max_tokens and temperature must be above 0")
        if self.seed < 0:
            raise RequestError("seed must be at least 0")


@dataclass(frozen=True, slots=True)
class Generated:
    """The answer to a GenerateRequest: the completions of each prompt, in the order of the prompts."""

    groups: tuple[tuple[Sampled, ...], ...]
    notice: str | None = None
    """For the operator: that a server begins or ceases to sample, and why; or that a prompt was left out."""
    failure: str = ""
    """The reason for which the node sampled in place of the server; empty if it did not."""


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A request to take one step. Raises RequestError if two groups have one id, or a number is out of bounds."""

    step: Count
    groups: tuple[TrainGroup, ...]
    objective: ExternalObjective = "positive-only"
    rate_scale: float = 1.0
    """Factor on the learning rate of the step, above 0 and at most 1: alarms lower it."""
    restart: Count | None = None
    """The step of the best weights from which this step starts; None for the weights after the step before."""

    def __post_init__(self) -> None:
        if not 0 < self.rate_scale <= 1:
            raise RequestError("rate_scale must be above 0 and at most 1")
        named = tuple(group if group.id else replace(group, id=str(number)) for number, group in enumerate(self.groups))
        if len({group.id for group in named}) < len(named):
            raise RequestError("two groups of a request have one id")
        object.__setattr__(self, "groups", named)
        if not {group.stands_in for group in named} <= {"", *(group.id for group in self.placed)}:
            raise RequestError("a group stands in for one that has no place of its own")

    @property
    def placed(self) -> tuple[TrainGroup, ...]:
        """The groups with a place of their own."""
        return tuple(group for group in self.groups if not group.stands_in)


class GroupReport(Record, frozen=True):
    """The result of one group in one step."""

    tokens: Count = 0
    """Tokens trained on."""
    masked: Count = 0
    """Tokens of the correct completions that filters masked; of an external group only."""
    refused: Refusal | None = None
    """The reason for which the group was not trained on; None if it was."""
    rejected: Mapping[Count, FilterName] = {}
    """By number, the filter that rejected a correct completion of a peer."""
    untrained: tuple[Count, ...] = ()
    """By number, other correct completions of peers of which no token was trained on: too long ones, for instance."""


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The result of one step. A figure that could not be computed is None."""

    step: Count
    groups: Mapping[str, GroupReport]
    """The result of each group of the request by its id, without the unneeded stand-ins."""
    learning_rate: LearningRate
    """The rate of this step, with schedule and alarms."""
    loss: Finite | None = None
    grad_norm: Norm | None = None
    """L2 norm before clipping."""
    entropy: Entropy | None = None
    """Mean over trained local tokens, in nats."""
    mean_length: Amount | None = None
    """Mean over all local completions, in tokens."""
    truncated: Share | None = None
    """Share of local completions that were cut at the limit."""
    over_bytes: Share | None = None
    """Share of those that were cut at the bytes that the swarm keeps; None if unknown."""
    zero_advantage: Share | None = None
    """Share of the request's groups that have no advantage, without replayed ones."""
    external_weight: Share | None = None
    """Mean weight of the external groups."""
    local_tokens: Total = 0
    external_tokens: Total = 0
    skipped: str | None = None
    """The reason for which the step made no update; it counts all the same."""
    seconds: Amount = 0.0
    local_seconds: Amount = 0.0
    """Of `seconds`, for the gradient of the local groups."""
    external_seconds: Amount = 0.0
    """The same for what was trained on of the external groups, without the time for what filters rejected."""

    @property
    def external_share(self) -> float | None:
        """Share of the trained tokens that came from peers."""
        tokens = self.local_tokens + self.external_tokens
        return self.external_tokens / tokens if tokens else None


@dataclass(frozen=True, slots=True)
class Ready:
    """The state in which the learner started."""

    step: int
    parameters: int
    model: str
    device: str
    memory: str | None
    """One line about the memory that the model needs and that the machine has; None for the packaged policy."""
    fallback: str | None
    """The fault of a newer checkpoint that was passed over."""
    fingerprint: str = ""
    """Hash of the model's files and of its trained part: checkpoints fit a policy with the same one."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A request to go back to the checkpoint of a step, or for step 0 to the initial weights."""

    step: int

    def __post_init__(self) -> None:
        if self.step < 0:
            raise RequestError("step must be at least 0")


@dataclass(frozen=True, slots=True)
class Restored:
    """The answer to a RestoreRequest: no checkpoint of a later step is left on the disk."""

    step: int


@dataclass(frozen=True, slots=True)
class KeepBestRequest:
    """A request to keep the averaged weights of now as the best, and of the best weights before only those needed."""

    step: int
    """The step of now, so that a learner that has restarted meanwhile refuses."""
    needed: tuple[int, ...]
    """Steps of best weights that are still needed."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The answer to a request for a checkpoint or for the best weights."""

    step: int
    path: str
