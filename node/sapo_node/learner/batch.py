"""From groups of text to padded micro-batches of tokens. The end is trained only where a completion really ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_node.learner.generate import pad_left, positions_of
from sapo_node.learner.messages import Sampled, TrainGroup
from sapo_node.learner.model import ANSWER_END, Policy

MICRO_TOKENS = 4096
"""Padded tokens of one micro-batch, at most."""
MICRO_LOGITS = 2**26
"""Logits of one micro-batch, at most (256 MiB in fp32)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion as tokens, ready for the loss."""

    group: int
    external: bool
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    """Its token ids, with the end where the end is trained."""
    advantage: float
    weight: float


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows side by side: prompts padded on the left, completions on the right, so that completions start together."""

    rows: tuple[Row, ...]
    ids: Tensor
    """(B, P + T)"""
    attention: Tensor
    """(B, P + T)"""
    positions: Tensor
    """(B, P + T)"""
    targets: Tensor
    """(B, T) completion ids."""
    mask: Tensor
    """(B, T) 1 where a completion token stands."""


class Refused(Exception):
    """A group that must not be trained on; the message says why."""


def rows_of(policy: Policy, index: int, group: TrainGroup, max_tokens: int) -> list[Row]:
    """Return a group's completions as tokens. Raises Refused where one is too long or holds special tokens."""
    prompt = tuple(policy.prompt(group.question))
    if len(prompt) + max_tokens + 1 > policy.context:
        raise Refused(f"its prompt of {len(prompt)} tokens leaves no room in the model's {policy.context}")
    rows = []
    for completion, advantage in zip(group.completions, group.advantages, strict=True):
        tokens = _tokens(policy, completion, max_tokens)
        # A text that stops elsewhere than after its answer is not taught to stop there.
        if completion.finish == "stop" and completion.text.rstrip().endswith(ANSWER_END):
            tokens = (*tokens, policy.ends[0])
        rows.append(Row(index, group.source == "external", prompt, tokens, advantage, group.weight))
    return rows


def _tokens(policy: Policy, completion: Sampled, max_tokens: int) -> tuple[int, ...]:
    if completion.tokens is not None:
        if any(not 0 <= token < policy.vocabulary for token in completion.tokens):
            raise Refused("a token id lies outside the vocabulary")
        return completion.tokens
    if len(completion.text) > 64 * max_tokens:
        raise Refused("a completion is too long to be worth encoding")
    encoded = policy.encode_foreign(completion.text)
    if encoded is None:
        raise Refused("a completion holds the text of a special token")
    if len(encoded) > max_tokens:
        raise Refused(f"a completion has {len(encoded)} tokens here, over the limit of {max_tokens}")
    return tuple(encoded)


def micro_batches(policy: Policy, rows: Sequence[Row]) -> Iterator[MicroBatch]:
    """Cut rows into micro-batches within the memory bounds, those of like length together."""
    ordered = sorted(rows, key=lambda row: (len(row.prompt) + len(row.completion), row.group))
    part: list[Row] = []
    for row in ordered:
        if part and not _fits([*part, row], policy.vocabulary):
            yield _batch(policy, part)
            part = []
        part.append(row)
    if part:
        yield _batch(policy, part)


def _fits(rows: Sequence[Row], vocabulary: int) -> bool:
    completion = max(len(row.completion) for row in rows) + 1
    width = max(len(row.prompt) for row in rows) + completion
    return len(rows) * width <= MICRO_TOKENS and len(rows) * completion * vocabulary <= MICRO_LOGITS


def _batch(policy: Policy, rows: Sequence[Row]) -> MicroBatch:
    longest = max(1, *(len(row.completion) for row in rows)) if rows else 1
    prompts, prompt_mask = pad_left([row.prompt for row in rows], policy.pad, policy.device)
    targets = torch.tensor(
        [[*row.completion, *[policy.pad] * (longest - len(row.completion))] for row in rows], device=policy.device
    )
    mask = torch.tensor(
        [[1] * len(row.completion) + [0] * (longest - len(row.completion)) for row in rows], device=policy.device
    )
    attention = torch.cat([prompt_mask, mask], dim=1)
    return MicroBatch(
        rows=tuple(rows),
        ids=torch.cat([prompts, targets], dim=1),
        attention=attention,
        positions=positions_of(attention),
        targets=targets,
        mask=mask,
    )
