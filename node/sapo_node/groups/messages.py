"""What the main process and the learner say to each other, as values and as JSON. Neither torch nor trio here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, cast, get_args

from sapo_protocol.errors import LocalError

Finish = Literal["stop", "length"]
Source = Literal["local", "external"]
Correction = Literal["positive", "tapered", "paper"]
Dtype = Literal["float32", "bfloat16"]
Gate = Literal["baseline", "habits", "length", "steps", "agreement", "surprise", "follows"]
GATES: tuple[Gate, ...] = get_args(Gate)
PARTLY: frozenset[Gate] = frozenset({"surprise"})
"""Those of the learner that keep out tokens of a right answer and teach the rest of it."""
RARE = 1e-3
"""`surprise`: a token less probable than this is none that this policy would write."""
FOLLOWS = 0.05
"""`follows`: least probability of the answer, given the text before it."""


_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Whether this names a model of the Hugging Face hub; a folder that exists is a folder."""
    return _HUB_NAME.fullmatch(model) is not None and not Path(model).is_dir()


class Refusal(StrEnum):
    """Why nothing of a group was trained on, although it was in the batch."""

    NO_ROOM = "prompt too long for the model"
    TOO_LONG = "completion longer than max_tokens"
    SPECIAL = "completion encodes to a special token"
    UNREADABLE = "tokenizer failed on a text"
    OUTSIDE = "token id outside the vocabulary"
    NOT_FINITE = "loss or gradient not finite"
    """Of the whole batch."""
    KILLED_LEARNER = "batch killed the learner"
    """Too often, so the node gave the whole batch up."""


class RequestError(LocalError):
    """A request that the learner cannot serve. It stays alive, and its step does not move."""


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """Everything the learner process is told at its start."""

    checkpoints: str
    """Folder of this node's checkpoints; made when missing."""
    model: str = "seed"
    """`seed` for the packaged policy, a Hugging Face model folder, or the name of a model in the hub's cache."""
    lora: int = 0
    """Rank of LoRA adapters; 0 trains all weights."""
    dtype: Dtype = "float32"
    """What the model computes in; what is trained is held in fp32 whatever it is."""
    gradient_checkpointing: bool = False
    device: str = "auto"
    threads: int = 0
    """CPU threads of torch; 0 leaves one core to the others."""
    learning_rate: float = 1e-4
    warmup: int = 0
    """Steps over which the learning rate grows to its full value."""
    groups: int = 8
    """Groups of a full round, I + J: with `completions` and `max_tokens` the loss's constant denominator."""
    completions: int = 8
    max_tokens: int = 80
    """Longest completion, own or external, in tokens of this model."""
    max_completion_bytes: int = 1024
    gates: tuple[str, ...] = ()
    """Of GATES, what others' right answers must pass. `surprise` and `follows` are the learner's; for `agreement` it
    says what the gate has to know."""
    read_only: bool = False
    """The checkpoints are those of a node that may be running: the newest is read, and all of them left as they are."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion. Its `tokens` are this model's own ids without the end; None where it came from a peer."""

    text: str
    finish: Finish
    tokens: tuple[int, ...] | None = None
    silent: tuple[tuple[int, int], ...] = ()
    """Of a peer's text, the characters that are not taught: the first, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class TrainGroup:
    """The completions of one question with their advantages, in the same order."""

    source: Source
    prompt: str
    weight: float
    """Between 0 and 1; scales the group in the loss."""
    advantages: tuple[float, ...]
    completions: tuple[Sampled, ...]


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    prompts: tuple[str, ...]
    completions: int
    max_tokens: int
    seed: int
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class TrainRequest:
    step: int
    groups: tuple[TrainGroup, ...]
    correction: Correction = "positive"


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What one step did. Figures that could not be computed are None."""

    step: int
    loss: float | None
    grad_norm: float | None
    """L2 norm before clipping."""
    entropy: float | None
    """Mean over trained local tokens, in nats."""
    mean_length: float | None
    """Mean over all local completions, in tokens."""
    truncated: float | None
    """Share of local completions that were cut at the limit."""
    zero_advantage: float | None
    """Share of the request's groups that have no advantage."""
    learning_rate: float
    """Of this step, warm-up included."""
    external_weight: float | None
    """Mean weight of the external groups."""
    local_tokens: int
    external_tokens: int
    group_tokens: tuple[int, ...]
    """Trained tokens of each group of the request."""
    group_masked: tuple[int, ...]
    """Tokens of each group's correct completions that filters masked; of external groups only."""
    refused: tuple[tuple[int, Refusal], ...]
    """Index and reason of each group of which nothing was trained on for a reason of its own or of the batch."""
    kept_out: tuple[tuple[int, int, Gate], ...]
    """Others' right answers that the learner's gates kept out of the loss, `surprise` only in part: the group in the
    request, the completion in the group, and the gate."""
    agreement: tuple[tuple[int, int, bool], ...]
    """Of others' right answers, whether a step of own learning makes them more probable: the group, the completion, and
    the answer. Empty without the gate of that name, and before own learning is known."""
    skipped: str | None
    """Why no update was made, though the step counts."""
    seconds: float

    @property
    def external_share(self) -> float | None:
        """Share of the trained tokens that came from others."""
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
    """What the model needs and what there is, in one line; None for the packaged policy."""
    fallback: str | None
    """What was wrong with a newer checkpoint, if one was passed over."""


def generate_to_json(request: GenerateRequest) -> dict[str, Any]:
    return {
        "generate": {
            "questions": list(request.prompts),
            "completions": request.completions,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "temperature": request.temperature,
        }
    }


def generate_from_json(body: Any) -> GenerateRequest:
    """Raises RequestError where a field is missing, of another type or out of bounds."""
    table = _table(body, "generate")
    request = GenerateRequest(
        prompts=tuple(_text(q, "a question") for q in _items(table, "questions")),
        completions=_whole(table, "completions"),
        max_tokens=_whole(table, "max_tokens"),
        seed=_whole(table, "seed"),
        temperature=_number(table.get("temperature", 1.0), "temperature"),
    )
    if request.completions < 1 or request.max_tokens < 1 or request.temperature <= 0:
        raise RequestError("completions, max_tokens and temperature must be above 0")
    return request


def groups_to_json(groups: Sequence[Sequence[Sampled]]) -> list[list[dict[str, Any]]]:
    return [[_sampled_to_json(completion) for completion in group] for group in groups]


def groups_from_json(body: Any) -> list[tuple[Sampled, ...]]:
    return [tuple(_sampled_from_json(completion) for completion in group) for group in body]


def train_to_json(request: TrainRequest) -> dict[str, Any]:
    groups = [
        {
            "source": group.source,
            "question": group.prompt,
            "weight": group.weight,
            "advantages": list(group.advantages),
            "completions": [_sampled_to_json(completion) for completion in group.completions],
        }
        for group in request.groups
    ]
    return {"train": {"step": request.step, "groups": groups, "correction": request.correction}}


def train_from_json(body: Any) -> TrainRequest:
    """Raises RequestError where a field is missing, of another type or out of bounds."""
    table = _table(body, "train")
    correction = table.get("correction", "positive")
    if correction not in ("positive", "tapered", "paper"):
        raise RequestError(f"correction is {correction!r}; give positive, tapered or paper")
    return TrainRequest(
        step=_whole(table, "step"),
        groups=tuple(_group_from_json(group) for group in _items(table, "groups")),
        correction=cast("Correction", correction),
    )


def report_to_json(report: TrainReport) -> dict[str, Any]:
    return {
        "step": report.step,
        "loss": report.loss,
        "grad_norm": report.grad_norm,
        "entropy": report.entropy,
        "mean_length": report.mean_length,
        "truncated": report.truncated,
        "zero_advantage": report.zero_advantage,
        "learning_rate": report.learning_rate,
        "external_weight": report.external_weight,
        "trained_tokens": {"local": report.local_tokens, "external": report.external_tokens},
        "per_group_tokens": list(report.group_tokens),
        "per_group_masked": list(report.group_masked),
        "refused": [list(pair) for pair in report.refused],
        "kept_out": [list(each) for each in report.kept_out],
        "agreement": [list(each) for each in report.agreement],
        "skipped": report.skipped,
        "seconds": report.seconds,
    }


def report_from_json(body: Mapping[str, Any]) -> TrainReport:
    return TrainReport(
        step=body["step"],
        loss=body["loss"],
        grad_norm=body["grad_norm"],
        entropy=body["entropy"],
        mean_length=body["mean_length"],
        truncated=body["truncated"],
        zero_advantage=body["zero_advantage"],
        learning_rate=body["learning_rate"],
        external_weight=body["external_weight"],
        local_tokens=body["trained_tokens"]["local"],
        external_tokens=body["trained_tokens"]["external"],
        group_tokens=tuple(body["per_group_tokens"]),
        group_masked=tuple(body["per_group_masked"]),
        refused=tuple((index, Refusal(reason)) for index, reason in body["refused"]),
        kept_out=tuple((group, completion, gate) for group, completion, gate in body["kept_out"]),
        agreement=tuple((group, completion, agrees) for group, completion, agrees in body["agreement"]),
        skipped=body["skipped"],
        seconds=body["seconds"],
    )


def _group_from_json(body: Any) -> TrainGroup:
    table = _table(body, "a group")
    source = table.get("source")
    if source not in ("local", "external"):
        raise RequestError(f"a group's source is {source!r}; give local or external")
    group = TrainGroup(
        source=cast("Source", source),
        prompt=_text(table.get("question"), "a question"),
        weight=_number(table.get("weight"), "weight"),
        advantages=tuple(_number(value, "an advantage") for value in _items(table, "advantages")),
        completions=tuple(_sampled_from_json(completion) for completion in _items(table, "completions")),
    )
    if len(group.advantages) != len(group.completions):
        raise RequestError("a group has another number of advantages than of completions")
    if not 0 <= group.weight <= 1:
        raise RequestError("a group's weight must lie between 0 and 1")
    if source == "local" and any(completion.tokens is None for completion in group.completions):
        raise RequestError("a local completion lacks its tokens")
    return group


def _sampled_to_json(completion: Sampled) -> dict[str, Any]:
    body: dict[str, Any] = {"text": completion.text, "finish": completion.finish}
    if completion.tokens is not None:
        body["tokens"] = list(completion.tokens)
    if completion.silent:
        body["silent"] = [list(span) for span in completion.silent]
    return body


def _sampled_from_json(body: Any) -> Sampled:
    table = _table(body, "a completion")
    finish = table.get("finish")
    if finish not in ("stop", "length"):
        raise RequestError(f"a completion's finish is {finish!r}; give stop or length")
    tokens = table.get("tokens")
    if tokens is not None and not (isinstance(tokens, list) and all(type(token) is int for token in tokens)):
        raise RequestError("a completion's tokens must be whole numbers")
    return Sampled(
        text=_text(table.get("text"), "a completion's text"),
        finish=cast("Finish", finish),
        tokens=None if tokens is None else tuple(tokens),
        silent=tuple(_span(each) for each in table.get("silent", ())),
    )


def _span(body: Any) -> tuple[int, int]:
    if not (isinstance(body, list) and len(body) == 2 and all(type(place) is int for place in body)):
        raise RequestError("what is silent must be pairs of whole numbers")
    return body[0], body[1]


def _table(body: Any, name: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError(f"{name} must be an object")
    return body


def _items(table: Mapping[str, Any], name: str) -> list[Any]:
    value = table.get(name)
    if not isinstance(value, list):
        raise RequestError(f"{name} must be a list")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{name} must be text")
    return value


def _whole(table: Mapping[str, Any], name: str) -> int:
    value = table.get(name)
    if type(value) is not int or value < 0:
        raise RequestError(f"{name} must be a whole number, at least 0")
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float):
        raise RequestError(f"{name} must be a number")
    return float(value)
