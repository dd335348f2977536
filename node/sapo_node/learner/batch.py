"""Turns groups of text into padded micro-batches of tokens.

The end of a completion counts in the loss if the model sampled one, or if the completion has a positive advantage and
ends with an answer. An external completion has a positive advantage only if it is correct.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sapo_node.groups.advantage import counts
from sapo_node.groups.messages import Bounds, ExternalObjective, Refusal, Sampled, Source, TrainGroup
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.forward import (
    Lanes,
    Tokens,
    beginning_of,
    lane_mask,
    lane_size,
    packed,
    pad_right,
    read_prompts,
    run,
    stems_of,
)
from sapo_node.learner.model import Policy, Unreadable
from sapo_node.tasks.answer import ANSWER_END, answer_span

PADDING = 0.5
"""Padding of the completions of one micro-batch, at most, as a share of all tokens that the model reads for it."""
BEGUN = 256
"""One more micro-batch costs about the time in which the model reads this many tokens: Python starts its kernels."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion as tokens, ready for the loss."""

    group: str
    """The id of its group."""
    number: int
    """Number of the completion in its group."""
    source: Source
    prompt: Tokens
    completion: tuple[int, ...]
    """Its token ids, with the end if the end is trained."""
    advantage: float
    weight: float
    answer: tuple[int, ...] = ()
    """Places of the tokens of its answer and of the text after it, without the tags; for external completions only. An
    end that was not sampled is none of them: a policy that always stops at the tag has never sampled an end.
    """
    silent: tuple[int, ...] = ()
    """Places of the masked tokens."""
    sampled: tuple[float, ...] = ()
    """Log-probabilities of its first tokens when they were sampled; for local completions only."""
    has_end: bool = False
    """True if the last token is an end that was not sampled. It is no part of the text."""
    bounds: Bounds = Bounds()
    """The bounds of the filters; for correct external completions only."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Completions side by side, padded on the right, and the distinct prompts that they belong to."""

    rows: tuple[Row, ...]
    prompts: tuple[Tokens, ...]
    """The Q distinct prompts."""
    stems: Mapping[Tokens, int]
    """Tokens of a prompt's stem; see `forward`."""
    prompt_of: Tensor
    """(B,) place of each completion's prompt."""
    lanes: Lanes
    """The completions as the model reads them."""
    targets: Tensor
    """(B, T) completion ids."""
    mask: Tensor
    """(B, T) 1 where a completion token stands."""
    trained: Tensor
    """(B, T) 1 where a completion token stands that is not masked."""
    answer: Tensor
    """(B, T) 1 where a token of the answer stands, or one after it."""
    work: Tensor
    """(B, T) 1 where a token before the answer stands, or one of its tags."""
    sampled: Tensor
    """(B, T) log-probability with which a token was sampled; NaN where that is unknown."""


class Refused(Exception):
    """The trainer must not train on a group or a completion. `reason` says why."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


def rows_of(
    policy: Policy, group: TrainGroup, max_tokens: int, objective: ExternalObjective = "on-policy"
) -> list[Row]:
    """Return the completions of a group that count in the loss, as tokens. Leave out those that cannot be trained on.

    Raises Refused if the prompt leaves no room, or if a completion with a positive advantage cannot be trained on and
    no other such one is left. Raises Unreadable if the tokenizer fails on the prompt.
    """
    prompt = tuple(policy.prompt_tokens(Prompt(group.prompt, group.examples)))
    # As in sampling: a trained end needs no room, because the model does not read its last target.
    if len(prompt) + max_tokens > policy.context:
        raise Refused(Refusal.NO_ROOM)
    external = group.source == "external"
    rows: list[Row] = []
    reason: Refusal | None = None
    for number, (completion, advantage) in enumerate(zip(group.completions, group.advantages, strict=True)):
        if not counts(advantage, external=external, objective=objective):
            continue
        try:
            tokens = _tokens(policy, completion, max_tokens)
            answer = _answer(policy, completion, len(tokens)) if external else ()
            # A better completion is taught to stop after its answer, where sampling stops by itself. A worse one with
            # an answer sampled no end that it could be blamed for.
            answers = completion.finish == "stop" and completion.text.rstrip().endswith(ANSWER_END)
            has_end = advantage > 0 and answers and completion.end is None
            if has_end:
                tokens = (*tokens, policy.ends[0])
            silent = policy.overlapping(completion.text, completion.silent) if completion.silent else ()
        except Refused as refused:
            reason = refused.reason if advantage > 0 else reason
        except Unreadable:
            reason = Refusal.UNREADABLE if advantage > 0 else reason
        else:
            rows.append(
                Row(
                    group=group.id,
                    number=number,
                    source=group.source,
                    prompt=prompt,
                    completion=tokens,
                    advantage=advantage,
                    weight=group.weight,
                    answer=answer,
                    silent=silent,
                    sampled=_known(completion)[: len(tokens)],
                    has_end=has_end,
                    bounds=group.bounds,
                )
            )
    if reason and not any(row.advantage > 0 for row in rows):
        raise Refused(reason)
    return rows


def _tokens(policy: Policy, completion: Sampled, max_tokens: int) -> tuple[int, ...]:
    if completion.tokens is not None:
        tokens = completion.tokens if completion.end is None else (*completion.tokens, completion.end[0])
        if any(not 0 <= token < policy.vocabulary for token in tokens):
            raise Refused(Refusal.OUTSIDE)
        return tokens
    # Encoding takes time in proportion to the text.
    if len(completion.text) > 64 * max_tokens:
        raise Refused(Refusal.TOO_LONG)
    encoded = policy.encode_foreign(completion.text)
    if encoded is None:
        raise Refused(Refusal.SPECIAL)
    if len(encoded) > max_tokens:
        raise Refused(Refusal.TOO_LONG)
    return tuple(encoded)


def _known(completion: Sampled) -> tuple[float, ...]:
    """Return the log-probabilities with which the first tokens of a completion were sampled."""
    return completion.logprobs if completion.end is None else (*completion.logprobs, completion.end[1])


def _answer(policy: Policy, completion: Sampled, tokens: int) -> tuple[int, ...]:
    if (span := answer_span(completion.text)) is None:
        return ()
    others = set(policy.overlapping(completion.text, [(0, span[0]), (span[1], span[1] + len(ANSWER_END))]))
    return tuple(place for place in range(tokens) if place not in others)


def micro_batches(policy: Policy, rows: Sequence[Row]) -> Iterator[MicroBatch]:
    """Cut rows with a completion into micro-batches within the bounds.

    This compares two orders: sorted by length, completions need the least padding; sorted by prompt, the model reads
    few prompts twice. It takes the order that needs less time. Completions of one length stay in the order given.
    """
    stems = stems_of(policy, [row.prompt for row in rows])
    by_length = sorted(rows, key=lambda row: len(row.completion))
    by_prompt = sorted(by_length, key=lambda row: (row.prompt[: beginning_of(row.prompt, stems)], row.prompt))
    cuts = [list(_cut(policy, order, stems)) for order in (by_length, by_prompt)]
    for part, _ in min(cuts, key=lambda cut: sum(read + BEGUN for _, read in cut)):
        yield _batch(policy, part, stems)


def _cut(policy: Policy, rows: Sequence[Row], stems: Mapping[Tokens, int]) -> Iterator[tuple[list[Row], int]]:
    """Yield the rows of each micro-batch, in this order, and the tokens that the model reads for them."""
    part: list[Row] = []
    size, read = _Size(stems), 0
    for row in rows:
        size.add(row)
        if part and not size.fits(policy):
            yield part, read
            part, size = [], _Size(stems)
            size.add(row)
        part.append(row)
        read = size.read
    if part:
        yield part, read


@dataclass(slots=True)
class _Size:
    """Counts the tokens that the model reads for one micro-batch."""

    stems: Mapping[Tokens, int]
    rows: int = 0
    tokens: int = 0
    """Tokens of the completions, without padding."""
    longest: int = 0
    prompts: set[Tokens] = field(default_factory=set)
    beginnings: set[Tokens] = field(default_factory=set)
    """The distinct stems of the prompts, which the model reads first."""
    begun: int = 0
    """Tokens of the beginnings."""
    longest_prompt: int = 0
    longest_rest: int = 0

    def add(self, row: Row) -> None:
        self.rows += 1
        self.tokens += len(row.completion)
        self.longest = max(self.longest, len(row.completion))
        if row.prompt not in self.prompts:
            self.prompts.add(row.prompt)
            beginning = row.prompt[: beginning_of(row.prompt, self.stems)]
            self.begun += 0 if beginning in self.beginnings else len(beginning)
            self.beginnings.add(beginning)
            self.longest_prompt = max(self.longest_prompt, len(row.prompt))
            self.longest_rest = max(self.longest_rest, len(row.prompt) - len(beginning))

    @property
    def padded(self) -> int:
        """Tokens of the completions with their padding."""
        return self.rows * self.longest

    @property
    def read(self) -> int:
        """Tokens that the model reads."""
        return self.begun + len(self.prompts) * self.longest_rest + self.padded

    def fits(self, policy: Policy) -> bool:
        padded, read = self.padded, self.read
        # Another micro-batch would read a long prompt once more.
        most = policy.at_once.read * (2 if len(self.prompts) == 1 else 1)
        return (
            read <= (1 + PADDING) * (self.tokens + read - padded)
            and read <= most
            and padded + self.rows * self.longest_prompt <= policy.at_once.cached
            and padded * policy.vocabulary <= policy.at_once.logits
        )


def _batch(policy: Policy, rows: Sequence[Row], stems: Mapping[Tokens, int]) -> MicroBatch:
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(row.prompt for row in rows))}
    prompt_of = [places[row.prompt] for row in rows]
    targets, mask = pad_right([row.completion for row in rows], policy.pad, policy.device)
    answer, trained, work = torch.zeros_like(mask), mask.clone(), mask.clone()
    sampled = torch.full(mask.shape, torch.nan, device=policy.device)
    for place, row in enumerate(rows):
        sampled[place, : len(row.sampled)] = torch.tensor(row.sampled, device=policy.device)
        answer[place, list(row.answer)] = 1
        trained[place, list(row.silent)] = 0
        work[place, list(row.answer)] = 0
        if row.has_end:
            work[place, len(row.completion) - 1] = 0
    return MicroBatch(
        rows=tuple(rows),
        prompts=tuple(places),
        stems=stems,
        prompt_of=torch.tensor(prompt_of, device=policy.device),
        lanes=_lanes(policy, rows, prompt_of),
        targets=targets,
        mask=mask,
        trained=trained,
        answer=answer,
        work=work,
        sampled=sampled,
    )


def _lanes(policy: Policy, rows: Sequence[Row], prompt_of: Sequence[int]) -> Lanes:
    """Pack the rows into the largest lanes with at most PADDING: prompts may have unlike numbers of rows."""
    longest, counts = len(rows[-1].completion), Counter(prompt_of).values()
    largest = min(lane_size(policy, [row.prompt for row in rows], longest), max(counts))
    size = next(
        size
        for size in range(largest, 0, -1)
        if sum(math.ceil(count / size) for count in counts) * size <= (1 + PADDING) * len(rows)
    )
    return packed(policy, [row.completion for row in rows], prompt_of, size)


def completion_logits(policy: Policy, batch: MicroBatch) -> Tensor:
    """Return the logits that predict each completion token, (B, T, V)."""
    first, cache, prompts = read_prompts(policy, batch.prompts, batch.stems)
    first = first[batch.prompt_of][:, None]
    lanes = batch.lanes
    length = lanes.ids.shape[1]
    if length == 0:
        return first
    cache.reorder_cache(lanes.prompt_of)
    prompts = prompts[lanes.prompt_of]
    mask = lane_mask(policy, prompts, lanes.owner, size=lanes.size, asked=length)
    positions = prompts.sum(1, keepdim=True) + lanes.steps
    logits = run(policy, lanes.ids, mask, positions, cache, keep=length).flatten(0, 1)
    rest = logits.index_select(0, lanes.places.flatten()).view(*lanes.places.shape, -1)
    return torch.cat([first, rest], dim=1)
