"""The messages between the node and a foreign trainer. `groups.codec` converts them to JSON, which `openapi` describes.

The node has at most one piece of work for the trainer at a time: prompts to complete, a batch to train on, or a step to
go back to. Each has an id. The answer names the id, so that an answer to old work is noticed.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from sapo_node.groups.advantage import counts
from sapo_node.groups.codec import (
    Advantage,
    Count,
    Entropy,
    Finite,
    LearningRate,
    LogProb,
    Norm,
    Record,
    Share,
    TokenId,
)
from sapo_node.groups.levels import Level, Top
from sapo_node.groups.messages import FOLLOWS, Bounds, ExternalObjective, FilterName, Finish, GroupReport, Source
from sapo_node.tasks.answer import ANSWER_END, answer_span

Span = tuple[int, int]


class Message(Record, frozen=True):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Prompts(Record, frozen=True):
    """Work: complete the prompts that the swarm assigned to this node's next round."""

    id: str
    prompts: tuple[tuple[Message, ...], ...]
    """Each is a chat that ends with the user's question."""
    completions: Count
    """G: how many completions each prompt needs."""
    max_tokens: Count
    """Longest completion in tokens of the trainer's model, as the node's settings say."""
    max_bytes: Count
    """Longest completion in bytes of UTF-8. The node cuts the text of a longer one, and drops its tokens."""


class Completion(Record, frozen=True):
    """One completion that the trainer sampled."""

    text: str
    finish: Finish
    tokens: tuple[TokenId, ...] = ()
    """The token ids that were sampled. The node returns them with the batch; peers never see them."""
    logprobs: tuple[LogProb, ...] = ()
    """The log-probability of each of `tokens`."""
    tokenizer: str = ""
    """Names the tokenizer whose ids `tokens` are: a digest, for instance. Required if there are tokens."""


class Completed(Record, frozen=True):
    """A part of the answer to `Prompts`: the G completions of one prompt. The answer is whole with the last prompt."""

    id: str
    prompt: Count
    """The number of the prompt, from 0."""
    completions: tuple[Completion, ...]


class Graded(Record, frozen=True):
    """One completion of a batch, with what the node found."""

    text: str
    finish: Finish
    advantage: Advantage
    level: Level | None = None
    """The level that the node's scorer gave it, up to the `levels` of its group; None if it is not known."""
    reward: Share | None = None
    """level / levels: 1 for a correct completion; None if it is not known."""
    tokens: tuple[TokenId, ...] = ()
    """The token ids, if a trainer sent them and the text was not cut."""
    logprobs: tuple[LogProb, ...] = ()
    tokenizer: str = ""
    """The tokenizer whose ids they are. With another tokenizer or chat template ignore them, and encode the text."""
    masked: tuple[tuple[Count, Count], ...] = ()
    """Spans of the text that must not be trained on: the first character of each, and the one after its last."""


class Group(Record, frozen=True):
    """The completions of one prompt."""

    id: str
    """`local/<k>`, `replay/<k>`, or `<peer>/<epoch>/<counter>/<k>`."""
    source: Source
    """`local`: this trainer sampled it. `replay`: the same, in an earlier round. `external`: a peer wrote it, and the
    node verified task and rewards.
    """
    messages: tuple[Message, ...]
    weight: Share
    """Factor on the loss of each completion, above 0 and at most 1: the node's trust in it, and its age."""
    completions: tuple[Graded, ...]
    levels: Top = 1
    """L, the level of a correct completion. A group of a peer has advantages by correctness alone, so of its
    completions only correct ones have an advantage above 0."""
    bounds: Bounds = Bounds()
    """Bounds on its correct completions. For `min-token-prob`: the least log-probability of each token before the
    answer, and that of all these tokens together. For `length`: the most tokens.
    """


class Batch(Record, frozen=True):
    """Work: one step of training."""

    id: str
    step: Count
    """The number of this step."""
    groups: tuple[Group, ...]
    objective: ExternalObjective = "positive-only"
    """With `positive-only` an external completion counts only if its advantage is above 0."""
    rate_scale: Share = 1.0
    """Factor on the learning rate of this step: the node's alarms lower it."""
    filters: tuple[FilterName, ...] = ()
    """The filters that need the trainer's own probabilities; see `kept`."""

    def kept(
        self,
        group: Group,
        completion: Graded,
        offsets: Sequence[tuple[int, int]],
        logprobs: Sequence[float] | None = None,
    ) -> list[bool]:
        """Return which tokens of a completion to train on.

        `offsets` has the first character of each token and the one after its last, as fast tokenizers give them. For an
        end behind the text both are the length of the text.
        `logprobs` has the log-probability of each token under the trainer's model. Without it the filters that need
        probabilities do not run.
        """
        if group.source != "external":
            return [completion.advantage != 0] * len(offsets)
        if not counts(completion.advantage, external=True, objective=self.objective):
            return [False] * len(offsets)
        filters = self.filters if completion.advantage > 0 and logprobs is not None else ()
        bounds = group.bounds if completion.advantage > 0 else Bounds()
        return is_kept(completion.text, completion.masked, offsets, logprobs or (), filters, bounds=bounds)


class GoBack(Record, frozen=True):
    """Work: load the checkpoint of a step, delete all later ones, and start from there.

    An alarm accuses groups of later steps. The node then sends the batches of these steps again, without the accused
    groups.
    """

    id: str
    step: Count
    """0 stands for the weights before the first step."""


class Work(Record, frozen=True):
    """The work of the trainer now: at most one of the three."""

    prompts: Prompts | None = None
    batch: Batch | None = None
    go_back: GoBack | None = None

    @property
    def id(self) -> str:
        """The id of the work; empty if there is none."""
        found = self.prompts or self.batch or self.go_back
        return found.id if found else ""


class StepReport(Record, frozen=True):
    """The answer to `Batch`: what the step did. Figures that the trainer does not have are left out."""

    id: str
    groups: Mapping[str, GroupReport] = {}
    """By the id of the group. A group that is not named counts as not trained on."""
    saved: Count = 0
    """The newest step whose weights are in a checkpoint on disk. The node keeps the batches after the one before it."""
    learning_rate: LearningRate = 0.0
    loss: Finite | None = None
    grad_norm: Norm | None = None
    entropy: Entropy | None = None
    """Mean over the trained local tokens, in nats."""


class Started(Record, frozen=True):
    """The trainer has started, or has gone back: its weights hold exactly the steps up to this one."""

    step: Count


class GoBackRefused(Record, frozen=True):
    """The answer to `GoBack` of a trainer that cannot."""

    id: str
    reason: str


class Done(Record, frozen=True):
    """The answer of the node to a message that it accepted."""


def is_kept(
    text: str,
    masked: Sequence[Span],
    offsets: Sequence[Span],
    logprobs: Sequence[float],
    filters: Collection[FilterName],
    *,
    bounds: Bounds,
) -> list[bool]:
    """Return for each token of a correct external completion whether to train on it, for any tokenizer, without torch.

    `sapo_node.learner.filters` computes the same filters on tensors, and a test compares the two.

    A token that overlaps a masked span is not trained on. `answer-likelihood` rejects all tokens if the probability of
    the answer is below FOLLOWS. `min-token-prob` rejects all tokens if those before the answer are below the bounds.
    `length` rejects all tokens if there are more than `bounds` allow, without the end.
    """
    answer = _answer(text, offsets)
    end = (len(text), len(text))
    if bounds.tokens is not None and sum(token != end for token in offsets) > bounds.tokens:
        return [False] * len(offsets)
    if "answer-likelihood" in filters and sum(logprobs[place] for place in answer) < math.log(FOLLOWS):
        return [False] * len(offsets)
    if "min-token-prob" in filters:
        work = [logprobs[place] for place, token in enumerate(offsets) if place not in answer and token != end]
        if min(work, default=0.0) < bounds.token or sum(work) < bounds.text:
            return [False] * len(offsets)
    return [not _overlaps(token, masked) for token in offsets]


def _answer(text: str, offsets: Sequence[Span]) -> frozenset[int]:
    """The places of the tokens of the answer and of the text after it, without the tags. The end token has no text."""
    if (span := answer_span(text)) is None:
        return frozenset()
    others = [(0, span[0]), (span[1], span[1] + len(ANSWER_END))]
    return frozenset(
        place for place, token in enumerate(offsets) if token[0] < token[1] and not _overlaps(token, others)
    )


def _overlaps(token: Span, spans: Sequence[Span]) -> bool:
    return any(token[0] < last and first < token[1] for first, last in spans)
