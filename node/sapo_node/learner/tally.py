"""What a step of the trainer adds up over its micro-batches, by group and in all."""

from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from sapo_node.groups.messages import SOURCES, FilterName, GroupReport, Refusal, Source
from sapo_node.learner import grpo
from sapo_node.learner.batch import MicroBatch, Row


@dataclass(slots=True)
class GroupTally:
    """What a step adds up of one group. Most fields are those of GroupReport."""

    correct: frozenset[int] = frozenset()
    """The correct completions, by number; of an external group only."""
    taught: set[int] = field(default_factory=set)
    """Those of which a token was trained on."""
    tokens: int = 0
    masked: int = 0
    refused: Refusal | None = None
    rejected: dict[int, FilterName] = field(default_factory=dict)

    def report(self) -> GroupReport:
        untrained = tuple(sorted(self.correct - self.taught - self.rejected.keys()))
        return GroupReport(self.tokens, self.masked, self.refused, dict(sorted(self.rejected.items())), untrained)


@dataclass(slots=True)
class Tally:
    """What a step adds up in all."""

    groups: dict[str, GroupTally] = field(default_factory=dict)
    """By id."""
    loss: float = 0.0
    entropy: float = 0.0
    """In nats, of all local tokens."""
    tokens: Counter[Source] = field(default_factory=Counter)
    seconds: dict[Source, float] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0.0))

    def reject(self, row: Row, name: FilterName | None = None) -> None:
        """Take in a completion of which nothing is trained on: the filter of this name rejects it, or every token is
        masked.
        """
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
        """No update was made of what was added up."""
        self.tokens.clear()
        for group in self.groups.values():
            group.tokens = group.masked = 0
            group.refused = group.refused or Refusal.NOT_FINITE
