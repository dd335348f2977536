"""From groups of text to padded micro-batches of tokens. The end is trained only where a completion really ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.groups.answer import ANSWER_END, answer_span
from sapo_node.groups.messages import Refusal, Sampled, TrainGroup
from sapo_node.learner.forward import pad_left, pad_right, read_prompts, run
from sapo_node.learner.model import Policy

MICRO_TOKENS = 4096
"""Padded tokens of one micro-batch, at most."""
MICRO_LOGITS = 2**26
"""Logits of one micro-batch, at most (256 MiB in fp32)."""
PADDING = 0.5
"""Padding of the completions of one micro-batch, at most, as a share of their tokens."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion as tokens, ready for the loss."""

    group: str
    """The id of its group."""
    number: int
    """Of the completion in its group."""
    external: bool
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    """Its token ids, with the end where the end is trained."""
    advantage: float
    weight: float
    answer: tuple[int, ...] = ()
    """Places of the tokens of its answer and of what comes after it, without the tags; of others' completions only."""
    silent: tuple[int, ...] = ()
    """Places of the tokens that are not taught."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Completions side by side, padded on the right, and the distinct prompts they belong to, padded on the left."""

    rows: tuple[Row, ...]
    prompts: Tensor
    """(Q, P)"""
    prompt_mask: Tensor
    """(Q, P)"""
    prompt_of: Tensor
    """(B,) place of each completion's prompt."""
    targets: Tensor
    """(B, T) completion ids."""
    mask: Tensor
    """(B, T) 1 where a completion token stands."""
    trained: Tensor
    """(B, T) 1 where one stands that is not silent."""
    answer: Tensor
    """(B, T) 1 where a token of the answer stands, or one after it."""


class Refused(Exception):
    """A group that must not be trained on."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


def rows_of(policy: Policy, group: TrainGroup, max_tokens: int) -> list[Row]:
    """Return a group's completions as tokens. Raises Refused where one is too long or holds special tokens, Unreadable
    where the tokenizer fails.
    """
    prompt = tuple(policy.prompt_tokens(group.prompt))
    if len(prompt) + max_tokens + 1 > policy.context:
        raise Refused(Refusal.NO_ROOM)
    external = group.source == "external"
    rows = []
    for number, (completion, advantage) in enumerate(zip(group.completions, group.advantages, strict=True)):
        tokens = _tokens(policy, completion, max_tokens)
        # A text that stops elsewhere than after its answer is not taught to stop there.
        if completion.finish == "stop" and completion.text.rstrip().endswith(ANSWER_END):
            tokens = (*tokens, policy.ends[0])
        answer = _answer(policy, completion, len(tokens)) if external else ()
        silent = policy.overlapping(completion.text, completion.silent) if completion.silent else ()
        rows.append(Row(group.id, number, external, prompt, tokens, advantage, group.weight, answer, silent))
    return rows


def _tokens(policy: Policy, completion: Sampled, max_tokens: int) -> tuple[int, ...]:
    if completion.tokens is not None:
        if any(not 0 <= token < policy.vocabulary for token in completion.tokens):
            raise Refused(Refusal.OUTSIDE)
        return completion.tokens
    # Encoding takes time in proportion to the text.
    if len(completion.text) > 64 * max_tokens:
        raise Refused(Refusal.TOO_LONG)
    encoded = policy.encode_foreign(completion.text)
    if encoded is None:
        raise Refused(Refusal.SPECIAL)
    if len(encoded) > max_tokens:
        raise Refused(Refusal.TOO_LONG)
    return tuple(encoded)


def _answer(policy: Policy, completion: Sampled, tokens: int) -> tuple[int, ...]:
    if (span := answer_span(completion.text)) is None:
        return ()
    others = set(policy.overlapping(completion.text, [(0, span[0]), (span[1], span[1] + len(ANSWER_END))]))
    return tuple(place for place in range(tokens) if place not in others)


def micro_batches(policy: Policy, rows: Sequence[Row]) -> Iterator[MicroBatch]:
    """Cut rows with a completion into micro-batches within the bounds, completions of like length together and those of
    one length in the order given.
    """
    part: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.completion)):
        if part and not _fits([*part, row], policy.vocabulary):
            yield _batch(policy, part)
            part = []
        part.append(row)
    if part:
        yield _batch(policy, part)


def _fits(rows: Sequence[Row], vocabulary: int) -> bool:
    lengths = [len(row.completion) for row in rows]
    padded = len(rows) * max(lengths)
    return (
        padded <= (1 + PADDING) * sum(lengths)
        and padded + len(rows) * max(len(row.prompt) for row in rows) <= MICRO_TOKENS
        and padded * vocabulary <= MICRO_LOGITS
    )


def _batch(policy: Policy, rows: Sequence[Row]) -> MicroBatch:
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(row.prompt for row in rows))}
    prompts, prompt_mask = pad_left(list(places), policy.pad, policy.device)
    targets, mask = pad_right([row.completion for row in rows], policy.pad, policy.device)
    answer, trained = torch.zeros_like(mask), mask.clone()
    for place, row in enumerate(rows):
        answer[place, list(row.answer)] = 1
        trained[place, list(row.silent)] = 0
    return MicroBatch(
        rows=tuple(rows),
        prompts=prompts,
        prompt_mask=prompt_mask,
        prompt_of=torch.tensor([places[row.prompt] for row in rows], device=policy.device),
        targets=targets,
        mask=mask,
        trained=trained,
        answer=answer,
    )


def completion_logits(policy: Policy, batch: MicroBatch) -> Tensor:
    """Return the logits that predict each completion token, (B, T, V)."""
    first, cache = read_prompts(policy, batch.prompts, batch.prompt_mask)
    first = first[batch.prompt_of][:, None]
    length = batch.targets.shape[1] - 1
    if length == 0:
        return first
    cache.batch_select_indices(batch.prompt_of)
    mask = torch.cat([batch.prompt_mask[batch.prompt_of], batch.mask[:, :-1]], dim=1)
    return torch.cat([first, run(policy, batch.targets[:, :-1], mask, cache, keep=length)], dim=1)
