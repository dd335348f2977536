"""Between the texts of the feed and the tokens of a trainer, for fast tokenizers of transformers and without torch.

The token ids of a batch count where this tokenizer made them. Else the text is encoded anew: the trainer before may
have had another model. The other rules are those of the learner: in the text of a peer special tokens are ordinary
text, a correct completion that stopped after its answer is taught to end there, and a completion that is too long is
left out, not cut.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from msgspec import structs

from sapo_node.feed.messages import Batch, Completion, Graded, Group, Message, Prompts
from sapo_node.groups.codec import LEAST_LOGPROB
from sapo_node.groups.messages import GroupReport, Refusal, Source
from sapo_node.learner.encoding import (
    Decode,
    Lead,
    TemplateFailed,
    Unreadable,
    answer_end_first,
    completion_tokens,
    decoded,
    lead_of,
    prompt_tokens,
    specials_of,
    within,
)
from sapo_node.tasks.answer import ANSWER_END

LogProbs = Callable[[list[int], list[int]], Sequence[float]]
"""Gives the log-probability of each token of a completion after a prompt, under the trainer's model."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion of a batch as tokens."""

    group: str
    """The id of its group."""
    source: Source
    prompt: list[int]
    completion: list[int]
    mask: list[int]
    """1 for each token of the completion that is trained on, and 0 for every other."""
    advantage: float
    """With the weight of the group."""
    reward: float
    refused: Refusal | None = None
    """The reason for which no token of it can be trained on."""
    logprobs: tuple[float, ...] = ()
    """The log-probabilities with which this trainer sampled the tokens, if it sent them."""


def prompt_ids(messages: Sequence[Message], tokenizer: Any, *, thinking: bool = False) -> list[int]:
    """Return the tokens of a prompt, by the chat template of the model where it has one.

    A template that has the choice begins with a section for `thinking`. Raises LocalError where template or tokenizer
    fails.
    """
    chat = [{"role": each.role, "content": each.content} for each in messages]
    return prompt_tokens(chat, tokenizer, ends={tokenizer.eos_token_id}, thinking=thinking)


def completions_of(
    asked: Prompts,
    sampled: Sequence[Sequence[int]],
    tokenizer: Any,
    *,
    ends: Collection[int] = (),
    logprobs: Sequence[Sequence[float | None]] | None = None,
) -> list[list[Completion]]:
    """Return what `Feed.next_batch` wants of the sampled token ids: G completions of each prompt, one after another.

    A completion ends with its first end: what an engine wrote behind it, such as padding, is left out. A completion
    over the bound in bytes is cut, and its tokens with it. `ends` are the ids that end a completion, where the model
    has others than that of the tokenizer and those with which the chat template ends an answer. `logprobs` are those
    with which the engine sampled each token. Where it does not know one of them, none of that completion is sent.
    """
    ends = answer_end_first([tokenizer.eos_token_id, *ends], tokenizer)
    decode, digest = partial(decoded, tokenizer, specials_of(tokenizer, ends)), digest_of(tokenizer)
    parts = zip(sampled, logprobs or [()] * len(sampled), strict=True)
    found = [_completion(*part, asked.max_bytes, decode, ends) for part in parts]
    found = [structs.replace(each, tokenizer=digest) for each in found]
    size = asked.completions
    return [found[first : first + size] for first in range(0, len(found), size)]


def digest_of(tokenizer: Any) -> str:
    """Return what names a tokenizer, with its chat template: another one gives the same token ids another meaning."""
    known = json.dumps([_vocabulary(tokenizer, len(tokenizer)), tokenizer.chat_template])
    return hashlib.sha256(known.encode()).hexdigest()[:16]


@lru_cache(maxsize=2)  # a vocabulary of 150,000 tokens takes a third of a second
def _vocabulary(tokenizer: Any, size: int) -> str:
    """Return the digest of the ids and texts of all tokens. `size` is their number, which may grow."""
    del size
    known = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(known.encode()).hexdigest()


def rows_of(
    batch: Batch,
    tokenizer: Any,
    *,
    max_tokens: int,
    ends: Collection[int] = (),
    context: int | None = None,
    logprobs: LogProbs | None = None,
    thinking: bool = False,
) -> list[Row]:
    """Return the completions of a batch as tokens, group after group.

    `ends` are the ids that end a completion, where the model has others than that of the tokenizer. A correct
    completion of a peer is taught to end with the one that the chat template writes behind an answer.
    `context` has the tokens of the longest sequence that the model can take: a prompt that leaves no room for a
    completion is left out. Without `logprobs` the two filters that need probabilities do not run, and nothing else
    stops what they stop.
    """
    ends = answer_end_first([tokenizer.eos_token_id, *ends], tokenizer)
    of_tokenizer = tokenizer, digest_of(tokenizer), specials_of(tokenizer, ends), ends[0], lead_of(tokenizer)
    reader = _Reader(batch, *of_tokenizer, max_tokens, context, logprobs, thinking)
    return [row for group in batch.groups for row in reader.rows(group)]


def reports_of(rows: Sequence[Row]) -> dict[str, GroupReport]:
    """Return what `Feed.report` wants, for the rows that were trained on."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return {name: _report(found) for name, found in groups.items()}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes the rows of a batch."""

    batch: Batch
    tokenizer: Any
    digest: str
    specials: frozenset[int]
    end: int
    """The id of the token that ends an answer."""
    lead: Lead
    """The tokens that the model reads before the text of a peer's completion."""
    max_tokens: int
    context: int | None
    logprobs: LogProbs | None
    thinking: bool

    def rows(self, group: Group) -> list[Row]:
        try:
            prompt = prompt_ids(group.messages, self.tokenizer, thinking=self.thinking)
        except (Unreadable, TemplateFailed):
            return self._without_prompt(group, Refusal.UNREADABLE)
        if self.context is not None and len(prompt) + self.max_tokens > self.context:
            return self._without_prompt(group, Refusal.NO_ROOM)
        rows = [self._row(group, each, prompt) for each in group.completions]
        better = [row.refused for row in rows if row.advantage > 0]
        # Without a completion above the mean the group would only teach what not to answer.
        return [_masked(row) for row in rows] if better and all(better) else rows

    def _row(self, group: Group, completion: Graded, prompt: list[int]) -> Row:
        if completion.tokenizer != self.digest:  # the ids are of a peer, or of a trainer with another model
            completion = structs.replace(completion, tokens=(), logprobs=())
        try:
            ids, offsets = self._tokens(completion)
        except _Refused as refused:
            return self._left_out(group, completion, prompt, refused.reason)
        except Unreadable:
            return self._left_out(group, completion, prompt, Refusal.UNREADABLE)
        if not ids:
            return self._left_out(group, completion, prompt)
        asked = self.logprobs if group.source == "external" and completion.advantage > 0 else None
        kept = self.batch.kept(group, completion, offsets, asked(prompt, ids) if asked else None)
        return replace(_row(group, completion, prompt, ids, [int(each) for each in kept]), logprobs=completion.logprobs)

    def _tokens(self, completion: Graded) -> tuple[list[int], list[tuple[int, int]]]:
        """The token ids, and of each the first character and the one after its last."""
        if completion.tokens:  # of this trainer, and nothing of it is masked
            self._require_short(len(completion.tokens))
            return list(completion.tokens), [(0, 0)] * len(completion.tokens)
        ids, offsets = completion_tokens(self.tokenizer, completion.text, self.lead)
        if self.specials.intersection(ids):
            raise _Refused(Refusal.SPECIAL)
        self._require_short(len(ids))
        ends = completion.finish == "stop" and completion.text.rstrip().endswith(ANSWER_END)
        if ends and completion.advantage > 0:
            ids.append(self.end)
            offsets.append((len(completion.text), len(completion.text)))
        return ids, offsets

    def _require_short(self, tokens: int) -> None:
        if tokens > self.max_tokens:
            raise _Refused(Refusal.TOO_LONG)

    def _without_prompt(self, group: Group, reason: Refusal) -> list[Row]:
        return [self._left_out(group, each, [self.end], reason) for each in group.completions]

    def _left_out(self, group: Group, completion: Graded, prompt: list[int], reason: Refusal | None = None) -> Row:
        return replace(_row(group, completion, prompt, [self.end], [0]), refused=reason)


def _completion(
    ids: Sequence[int], logprobs: Sequence[float | None], max_bytes: int, decode: Decode, ends: Collection[int]
) -> Completion:
    end = next((place for place, token in enumerate(ids) if token in ends), None)
    ids = ids if end is None else ids[: end + 1]
    kept, text = within(ids, max_bytes, decode)
    whole = end is not None and len(kept) == len(ids)
    known = tuple(each for each in logprobs[: len(kept)] if each is not None and LEAST_LOGPROB <= each <= 0)
    known = known if len(known) == len(kept) else ()
    return Completion(text, "stop" if whole else "length", tuple(kept), known)


class _Refused(Exception):
    """A completion that must not be trained on."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


def _row(group: Group, completion: Graded, prompt: list[int], ids: list[int], mask: list[int]) -> Row:
    advantage, reward = group.weight * completion.advantage, completion.reward or 0.0
    return Row(group.id, group.source, prompt, ids, mask, advantage, reward)


def _masked(row: Row) -> Row:
    return replace(row, mask=[0] * len(row.mask))


def _report(rows: Sequence[Row]) -> GroupReport:
    tokens = sum(sum(row.mask) for row in rows)
    masked = sum(len(row.mask) - sum(row.mask) for row in rows if row.advantage > 0 and not row.refused)
    reason = next((row.refused for row in rows if row.refused and row.advantage > 0), None)
    correct = [(number, row) for number, row in enumerate(rows) if row.source == "external" and row.advantage > 0]
    untrained = tuple(number for number, row in correct if not any(row.mask))
    return GroupReport(tokens, masked, None if tokens else reason, untrained=untrained)
