"""Trains one policy by GRPO, step after step.

A step updates all weights, or none if its report says `skipped`. Both count as a step. So the same requests after the
same checkpoint give the same weights.

The trainer holds the trained weights in fp32. If the model computes in fewer bits, the trainer rounds them into the
model after each step: one update is often smaller than the last bit of a bf16 weight, and would be lost.

The learning rate depends on the number of the step alone, and needs no last step: after the warm-up it decays as
1 / (1 + steps / decay_rounds), down to LEAST_RATE. The trainer also keeps an average of the trained weights over about
the last tenth of the steps. Evaluation and export use the average. Training and sampling for rounds use the weights
themselves.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from sapo_node.groups.messages import (
    SOURCES,
    ExternalObjective,
    FilterName,
    GroupReport,
    LearnerOptions,
    Refusal,
    RequestError,
    Source,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.record import is_cut, is_over_bytes
from sapo_node.learner import filters, grpo
from sapo_node.learner.batch import MicroBatch, Refused, Row, completion_logits, micro_batches, rows_of
from sapo_node.learner.model import ModelError, Policy, Unreadable

MAX_GRAD_NORM = 1.0
ADAM_EPS = 1e-15
"""Far below the gradient of any weight. The loss is divided by the tokens of the largest round there may be. With 1e-8,
torch's default, steps would be shorter where completions may be longer: 0.55 times for SmolLM2 at 2,048 tokens.
"""
LEAST_RATE = 0.05
"""The decay stops at this part of the full learning rate, so a run of any length continues to learn."""
WORTHWHILE = 2 / 3
"""The trainer computes the gradient of a micro-batch if the filters leave at least this part of its tokens. A gradient
takes about as long as two forward passes. If the filters leave less, one more forward pass and the gradient of the rest
take less time. So a peer whose completions are rejected costs this node one forward pass."""
AVERAGE_DECAY = 0.98
"""Part of the average that a step keeps, at most: from step 440 on the average spans about 50 steps. Before, a step
keeps (1 + step) / (10 + step), as in TensorFlow's ExponentialMovingAverage, so that the average leaves the initial
weights behind."""


@dataclass(slots=True)
class _GroupSum:
    """Sums of one step over the micro-batches of one group. Most fields are those of GroupReport."""

    correct: frozenset[int] = frozenset()
    """Numbers of the correct completions; for an external group only."""
    taught: set[int] = field(default_factory=set)
    """Numbers of the correct completions with a trained token."""
    tokens: int = 0
    masked: int = 0
    refused: Refusal | None = None
    rejected: dict[int, FilterName] = field(default_factory=dict)

    def report(self) -> GroupReport:
        untrained = tuple(sorted(self.correct - self.taught - self.rejected.keys()))
        return GroupReport(self.tokens, self.masked, self.refused, dict(sorted(self.rejected.items())), untrained)


@dataclass(slots=True)
class _Sum:
    """Sums of one step over its micro-batches."""

    groups: dict[str, _GroupSum] = field(default_factory=dict)
    """By id."""
    loss: float = 0.0
    entropy: float = 0.0
    """In nats, of all local tokens."""
    tokens: Counter[Source] = field(default_factory=Counter)
    seconds: dict[Source, float] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0.0))

    def reject(self, row: Row, name: FilterName | None = None) -> None:
        """Count a completion that is not trained on: the filter of this name rejects it, or every token is masked."""
        group = self.groups[row.group]
        if name:
            group.rejected[row.number] = name
        if row.number in group.correct:
            group.masked += len(row.completion)

    def count(self, batch: MicroBatch, weights: Tensor, logits: Tensor, loss: float) -> None:
        """Add a micro-batch of one source with the weights of its tokens, (B, T), and its logits, (B, T, V)."""
        self.loss += loss
        source = batch.rows[0].source
        for row, trained in zip(batch.rows, (weights > 0).sum(1).tolist(), strict=True):
            group = self.groups[row.group]
            group.tokens += trained
            if row.number in group.correct and row.number not in group.rejected:
                group.masked += len(row.completion) - trained
                if trained:
                    group.taught.add(row.number)
            self.tokens[source] += trained
        if source == "local":
            self.entropy += float((grpo.token_entropy(logits) * batch.mask).sum())

    def give_up(self) -> None:
        """Count no token as trained, because the step makes no update."""
        self.tokens.clear()
        for group in self.groups.values():
            group.tokens = group.masked = 0
            group.refused = group.refused or Refusal.NOT_FINITE


class Trainer:
    """Holds the optimizer and the number of the last step."""

    def __init__(self, policy: Policy, options: LearnerOptions) -> None:
        self.policy = policy
        self.step = 0
        self.trained = _in_full_precision(policy)
        self.parameters = list(self.trained.values())
        self.average = {name: value.detach().clone() for name, value in self.trained.items()}
        """The averaged weights, in fp32."""
        self.optimizer = torch.optim.Adam(self.parameters, lr=options.learning_rate, eps=ADAM_EPS, foreach=True)
        self._learning_rate = options.learning_rate
        self._warmup = options.warmup
        self._decay_rounds = options.decay_rounds
        self._max_tokens = options.max_tokens
        self._filters = frozenset(options.filters)
        self.denominator = float(options.groups * options.completions * options.max_tokens)
        """Tokens of the largest round. The trainer divides the loss of a step by them."""

    def train(self, request: TrainRequest, start: Mapping[str, Tensor] | None = None) -> TrainReport:
        """Take the step, from the weights `start` if they are given. Raises RequestError when its number does not
        follow the last one.
        """
        if request.step != self.step + 1:
            raise RequestError(f"step {request.step} does not follow step {self.step}")
        started = time.monotonic()
        if start is not None:
            self.restart(start)
        rate = request.rate_scale * self._rate(request.step)
        sums = _Sum()
        try:
            self._backward(request.placed, request.objective, sums)
            stand_ins = [each for each in request.groups if each.stands_in and not sums.groups[each.stands_in].tokens]
            self._backward(stand_ins, request.objective, sums)
            norm, skipped = self._update(rate, sums)
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        self.step = request.step
        self._take_average()
        entropy = _ratio(sums.entropy, sums.tokens["local"])
        if skipped is Refusal.NOT_FINITE:
            sums.give_up()
        groups = [group for group in request.groups if group.id in sums.groups and group.source != "replay"]
        local = [each for group in groups if group.source == "local" for each in group.completions]
        weights = [group.weight for group in groups if group.source == "external"]
        return TrainReport(
            step=self.step,
            groups={name: group.report() for name, group in sums.groups.items()},
            loss=sums.loss if math.isfinite(sums.loss) else None,
            grad_norm=norm if math.isfinite(norm) else None,
            entropy=entropy,
            mean_length=_ratio(sum(len(each.tokens or ()) for each in local), len(local)),
            truncated=_ratio(sum(map(is_cut, local)), len(local)),
            over_bytes=_ratio(sum(is_over_bytes(each, self._max_tokens) for each in local), len(local)),
            zero_advantage=_ratio(sum(not any(each.advantages) for each in groups), len(groups)),
            learning_rate=rate,
            external_weight=_ratio(sum(weights), len(weights)),
            local_tokens=sums.tokens["local"] + sums.tokens["replay"],
            external_tokens=sums.tokens["external"],
            skipped=skipped,
            seconds=time.monotonic() - started,
            local_seconds=sums.seconds["local"] + sums.seconds["replay"],
            external_seconds=sums.seconds["external"],
        )

    @torch.no_grad()
    def publish(self) -> None:
        """Round the trained weights into the model, if it holds them in fewer bits."""
        for name, value in self.policy.trainable():
            if value is not self.trained[name]:
                value.copy_(self.trained[name])

    @torch.no_grad()
    def restart(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from other weights: the average begins at them, and the optimizer forgets its moments."""
        for name, value in self.trained.items():
            value.copy_(weights[name])
            self.average[name].copy_(weights[name])
        self.optimizer.state.clear()
        self.publish()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within this context the model has the averaged weights. If it computes in fp32, nothing is copied."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, value in self.trained.items():
            value.data, self.average[name] = self.average[name], value.data
        self.publish()

    @torch.no_grad()
    def _take_average(self) -> None:
        kept = min(AVERAGE_DECAY, (1 + self.step) / (10 + self.step))
        for name, value in self.trained.items():
            self.average[name].lerp_(value, 1 - kept)

    def _rate(self, step: int) -> float:
        """Return the learning rate of a step. It depends on nothing else, so a resumed run repeats a straight one."""
        if step < self._warmup:
            return self._learning_rate * step / self._warmup
        if not self._decay_rounds:
            return self._learning_rate
        return self._learning_rate * max(LEAST_RATE, 1 / (1 + (step - self._warmup) / self._decay_rounds))

    def _encode(self, groups: Sequence[TrainGroup], objective: ExternalObjective, sums: _Sum) -> list[Row]:
        """Return the completions that count and can be trained on. Record in the sums why a group cannot."""
        rows: list[Row] = []
        for group in groups:
            correct = {number for number, advantage in enumerate(group.advantages) if advantage > 0}
            sums.groups[group.id] = _GroupSum(frozenset(correct) if group.source == "external" else frozenset())
            try:
                rows += rows_of(self.policy, group, self._max_tokens, objective)
            except Refused as refusal:
                sums.groups[group.id].refused = refusal.reason
            except (Unreadable, ModelError):  # a chat template may fail on this prompt alone
                sums.groups[group.id].refused = Refusal.UNREADABLE
        return rows

    def _backward(self, groups: Sequence[TrainGroup], objective: ExternalObjective, sums: _Sum) -> None:
        """Add the gradient of the completions that count. The model skips one whose tokens are all masked."""
        rows = self._encode(groups, objective, sums)
        for source in SOURCES:
            external = source == "external"
            counted: list[Row] = []
            for row in rows:
                if row.source != source or not (row.weight > 0 and row.completion):
                    continue
                if external and filters.is_too_long(row):
                    sums.reject(row, "length")
                elif len(row.silent) == len(row.completion):
                    sums.reject(row)
                else:
                    counted.append(row)
            again = self._learn(counted, sums, judges=external)
            self._learn(again, sums, judges=False)

    def _learn(self, rows: Sequence[Row], sums: _Sum, *, judges: bool) -> list[Row]:
        """Add the gradient of each micro-batch of rows of one source. If `judges`, filters reject rows first. If they
        leave less than WORTHWHILE of a micro-batch, skip its gradient. Return the rows that they leave of such
        micro-batches.
        """
        again: list[Row] = []
        started = time.monotonic()
        for batch in micro_batches(self.policy, rows):
            logits = completion_logits(self.policy, batch)
            logprobs = grpo.token_logprobs(logits, batch.targets)
            weights, left = self._weights(batch, logprobs), list(batch.rows)
            if judges:
                passes, rejected = filters.passing(self._filters, batch, logprobs.detach())
                weights = weights * passes
                for row, filter_name in rejected:
                    sums.reject(row, filter_name)
                left = [row for row in left if row.number not in sums.groups[row.group].rejected]
            part = sum(len(row.completion) for row in left) / sum(len(row.completion) for row in batch.rows)
            if part >= WORTHWHILE:
                advantages = torch.tensor([row.advantage for row in batch.rows], device=self.policy.device)
                # One inner epoch: the policy that is trained is still the one at the start of the step.
                corrected = weights * grpo.importance(logprobs.detach(), batch.sampled)
                inputs = grpo.LossInputs(logprobs, logprobs.detach(), advantages, corrected)
                loss = grpo.policy_loss(inputs, self.denominator)
                loss.backward()  # type: ignore[no-untyped-call]
                sums.count(batch, weights, logits.detach(), loss.item())
            else:
                again += left
                part = 0.0
            ended = time.monotonic()
            # `auto` sets J by the time of what is trained on. Otherwise rejected groups would lower J for all peers.
            sums.seconds[batch.rows[0].source] += part * (ended - started)
            started = ended
        return again

    def _weights(self, batch: MicroBatch, logprobs: Tensor) -> Tensor:
        """Return the (B, T) token weights."""
        loss_weights = torch.tensor([row.weight for row in batch.rows], device=self.policy.device)
        return batch.trained.to(logprobs.dtype) * loss_weights[:, None]

    def _update(self, rate: float, sums: _Sum) -> tuple[float, str | None]:
        """Apply the gradients. Return their norm before clipping, and the reason if nothing was applied."""
        if not any(group.tokens for group in sums.groups.values()):
            return 0.0, "no group has an advantage"
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM))
        if not (math.isfinite(sums.loss) and math.isfinite(norm)):
            return norm, Refusal.NOT_FINITE
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.publish()
        return norm, None


def _in_full_precision(policy: Policy) -> dict[str, nn.Parameter]:
    """Return the weights that the optimizer updates: the model's own, or fp32 copies that get their gradients."""
    trained = {}
    for name, value in policy.trainable():
        held = value
        if value.dtype != torch.float32:
            held = nn.Parameter(value.detach().float())
            value.register_post_accumulate_grad_hook(partial(_hand_over, held))  # type: ignore[no-untyped-call]
        trained[name] = held
    return trained


def _hand_over(held: nn.Parameter, value: Tensor) -> None:
    """Add a gradient that has just been computed to those of the fp32 copy, where many small ones can add up."""
    assert value.grad is not None
    gradient = value.grad.float()
    held.grad = gradient if held.grad is None else held.grad.add_(gradient)
    value.grad = None


def _ratio(total: float, count: int) -> float | None:
    return total / count if count and math.isfinite(total) else None
