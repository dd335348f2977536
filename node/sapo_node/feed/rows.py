"""Between the texts of the feed and the tokens of a trainer, for fast tokenizers of transformers and without torch.

The rules are those of the learner: in the text of a peer special tokens are ordinary text, a correct completion that
stopped after its answer is taught to end there, and a completion that is too long is left out, not cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sapo_node.feed.messages import Batch, Completion, Graded, Group, Message, Prompts
from sapo_node.groups.answer import ANSWER_END
from sapo_node.groups.messages import GroupReport, Refusal, Source
from sapo_node.learner.encoding import prompt_tokens

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
    is_too_long: bool = False


def prompt_ids(messages: Sequence[Message], tokenizer: Any, *, thinking: bool = False) -> list[int]:
    """Return the tokens of a prompt, by the chat template of the model where it has one.

    A template that has the choice begins with a section for `thinking`. Raises LocalError where template or tokenizer
    fails.
    """
    chat = [{"role": each.role, "content": each.content} for each in messages]
    return prompt_tokens(chat, tokenizer, ends={tokenizer.eos_token_id}, thinking=thinking)


def completions_of(asked: Prompts, sampled: Sequence[Sequence[int]], tokenizer: Any) -> list[list[Completion]]:
    """Return what `Feed.next_batch` wants of the sampled token ids: G completions of each prompt, one after another."""
    texts = tokenizer.batch_decode(sampled, skip_special_tokens=True)
    found = [
        Completion(text, "stop" if ids and ids[-1] == tokenizer.eos_token_id else "length", tuple(ids))
        for text, ids in zip(texts, sampled, strict=True)
    ]
    size = asked.completions
    return [found[first : first + size] for first in range(0, len(found), size)]


def rows_of(
    batch: Batch, tokenizer: Any, *, max_tokens: int, logprobs: LogProbs | None = None, thinking: bool = False
) -> list[Row]:
    """Return the completions of a batch as tokens, group after group.

    Without `logprobs` the two filters that need probabilities do not run, and nothing else stops what they stop.
    """
    return [
        _row(batch, group, each, prompt, tokenizer, max_tokens=max_tokens, logprobs=logprobs)
        for group in batch.groups
        for prompt in [prompt_ids(group.messages, tokenizer, thinking=thinking)]
        for each in group.completions
    ]


def reports_of(rows: Sequence[Row]) -> dict[str, GroupReport]:
    """Return what `Feed.report` wants, for the rows that were trained on."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return {name: _report(found) for name, found in groups.items()}


def _row(
    batch: Batch,
    group: Group,
    completion: Graded,
    prompt: list[int],
    tokenizer: Any,
    *,
    max_tokens: int,
    logprobs: LogProbs | None,
) -> Row:
    ids, offsets = _tokens(completion, tokenizer)
    is_too_long = len(ids) > max_tokens
    mask = [False]
    if is_too_long or not ids:
        ids = [tokenizer.eos_token_id]
    else:
        asked = logprobs if group.source == "external" and completion.advantage > 0 else None
        mask = batch.kept(group, completion, offsets, asked(prompt, ids) if asked else None)
    return Row(
        group.id,
        group.source,
        prompt,
        ids,
        [int(each) for each in mask],
        group.weight * completion.advantage,
        float(completion.reward or 0),
        is_too_long,
    )


def _tokens(completion: Graded, tokenizer: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """The token ids, and of each the first character and the one after its last."""
    if completion.tokens:  # of this trainer, and nothing of it is masked
        return list(completion.tokens), [(0, 0)] * len(completion.tokens)
    encoded = tokenizer(
        completion.text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
    )
    ids, offsets = list(encoded["input_ids"]), list(encoded["offset_mapping"])
    ends = completion.finish == "stop" and completion.text.rstrip().endswith(ANSWER_END)
    if ends and completion.advantage > 0:
        ids.append(tokenizer.eos_token_id)
        offsets.append((len(completion.text), len(completion.text)))
    return ids, offsets


def _report(rows: Sequence[Row]) -> GroupReport:
    tokens = sum(sum(row.mask) for row in rows)
    masked = sum(len(row.mask) - sum(row.mask) for row in rows if row.advantage > 0 and not row.is_too_long)
    too_long = any(row.is_too_long and row.advantage > 0 for row in rows)
    return GroupReport(tokens, masked, Refusal.TOO_LONG if too_long and not tokens else None)
