"""The groups of completions that a node handles, and what `Book` says of each.

A group is G completions of one task, with one level each. A `LocalGroup` is this node's own. A `VerifiedGroup` is a
peer's, with the levels that this node computed. An `Entry` is either of them as the book holds it, with its state.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sapo_node.groups.codec import Advantage, Count, Share
from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import FilterName, Sampled

GroupKey = tuple[str, int, int, int]
"""(peer, epoch, counter, k): group k of the peer's round."""
LOCAL = ""
"""Stands for this node itself where a peer is named."""


@dataclass(frozen=True, slots=True)
class VerifiedGroup:
    """G completions by a peer of a task that was assigned to it, with the levels that this node computed."""

    peer: str
    epoch: int
    counter: int
    k: int
    dataset: str
    """The name of its task (`task_name`)."""
    prompt: str
    completions: tuple[Sampled, ...]
    levels: Levels
    lengths: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """UTF-8 bytes of each completion. Counted once, because every round reads them while the group waits."""

    @property
    def key(self) -> GroupKey:
        """The key of this group."""
        return self.peer, self.epoch, self.counter, self.k

    @property
    def correct(self) -> tuple[str, ...]:
        """The texts of its correct completions."""
        return self.correct_without(())

    def correct_without(self, rejected: Container[int]) -> tuple[str, ...]:
        """The texts of its correct completions without some of them, by number."""
        pairs = enumerate(zip(self.completions, self.levels.correct, strict=True))
        return tuple(each.text for number, (each, is_correct) in pairs if is_correct and number not in rejected)

    @property
    def size(self) -> int:
        """UTF-8 bytes of its prompt and its completions."""
        return len(self.prompt.encode()) + sum(self.lengths)

    @property
    def rollout(self) -> tuple[str, int, int]:
        """The rollout that it came in: peer, epoch and counter."""
        return self.peer, self.epoch, self.counter

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(len(each.text.encode()) for each in self.completions))


@dataclass(frozen=True, slots=True)
class LocalGroup:
    """G completions by this node of one of its assigned tasks."""

    dataset: str
    """The name of its task (`task_name`)."""
    prompt: str
    digest: bytes
    completions: tuple[Sampled, ...]
    levels: Levels
    advantages: tuple[float, ...]
    epoch: int = 0
    counter: int = 0
    k: int = 0

    @property
    def key(self) -> GroupKey:
        """The key of this group."""
        return LOCAL, self.epoch, self.counter, self.k


class State(StrEnum):
    """The states of a group."""

    OWN = "own"
    """This node's, and in the batch of a step; `Entry.why` says so where nothing of it was trained on."""
    VERIFIED = "verified"
    """A peer's, and on offer."""
    DRAWN = "drawn"
    """In the batch of a step that is not trained yet."""
    TRAINED = "trained"
    LEFT_OUT = "left out"
    """For a reason of `Unusable` or `NotDrawn`, of the learner or a filter, or because its steps were taken back."""


class Unusable(StrEnum):
    """Reasons for which a group of an accepted rollout cannot be trained on."""

    CLAIMED_ZERO_ADVANTAGE = "claimed zero advantage"
    NO_BODY = "body left out"
    MALFORMED_BODY = "malformed body"
    UNSCORED = "scoring failed"
    OTHER_TASK = "question or answer differs"
    FALSE_CLAIM = "false claim"
    ZERO_ADVANTAGE = "zero advantage"
    NO_CORRECT = "no correct completion"
    HELD_OUT = "held-out prompt"


class NotDrawn(StrEnum):
    """Reasons for which a group on offer was not drawn in a round, or is no longer on offer."""

    ENOUGH = "enough others were drawn"
    STRANGERS = "strangers had their share of this round"
    TOO_LARGE = "larger than what was left of this round's text"
    SELDOM_ACCEPTED = "filters rejected most of its peer's groups"
    BANNED = "its peer is banned"
    TOO_OLD = "too old to be trained on"
    NONE_WANTED = "this round wanted none"
    MADE_ROOM = "made room for newer groups"


Span = tuple[Count, Count]
"""The first character of a part of a text, and the one after its last."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, where those that overlap or touch are one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a group in one step."""

    weight: Share
    advantages: tuple[Advantage, ...]
    masked_spans: tuple[tuple[Span, ...], ...] = ()
    """For each completion, its masked characters; empty if no completion has any."""
    rejected: Mapping[Count, FilterName] = field(default_factory=dict)
    """By number, the filter that rejected a correct completion of a peer, before the draw or in the learner."""
    untrained: tuple[Count, ...] = ()
    """By number, other correct completions of a peer of which no token was trained on."""
    tokens: Count = 0
    """Tokens trained on."""
    masked: Count = 0
    """Tokens of the correct completions that filters masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One group as the book holds it."""

    number: int
    peer: str
    """LOCAL for this node's own."""
    epoch: int
    counter: int
    k: int
    envelope_id: str
    """Hexadecimal; empty for this node's own."""
    state: State
    why: str
    step: int | None
    """The step of the batch that it is in; None if it is in none."""
    at: float
    """Unix time of the last change."""
    dataset: str
    prompt: str
    completions: tuple[Sampled, ...]
    """Empty if the group was never scored, and where its texts are no longer kept."""
    levels: Levels
    """Without a level if the group was never scored."""
    outcome: Outcome | None
    """None before its step, and where there was none."""

    @property
    def key(self) -> GroupKey:
        """The key of this group."""
        return self.peer, self.epoch, self.counter, self.k

    def masked_spans(self) -> list[list[Span]]:
        """Return the characters of each completion that were not trained on, in order; spans that touch are one.

        Empty if no step has trained on the group.
        """
        outcome = self.outcome
        if outcome is None:
            return []
        untaught = {*outcome.rejected, *outcome.untrained}
        spans = outcome.masked_spans or ((),) * len(self.completions)
        return [
            [(0, len(each.text))] if number in untaught and each.text else merged(spans[number])
            for number, each in enumerate(self.completions)
        ]


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """Counts of the groups that a node shared for one task of the swarm."""

    dataset: str
    groups: int
    informative: int
    """Groups with correct and incorrect completions: peers learn from no other group."""
    completions: int
    right: int


@dataclass(frozen=True, slots=True)
class ContributionReport:
    """One round of a node that shares and does not train."""

    epoch: int
    counter: int
    tasks: tuple[TaskAnswers, ...]


def by_task(local: Sequence[LocalGroup]) -> tuple[TaskAnswers, ...]:
    """Count groups by task, in the order of the tasks' names."""
    datasets: dict[str, list[LocalGroup]] = {}
    for group in local:
        datasets.setdefault(group.dataset, []).append(group)
    return tuple(
        TaskAnswers(
            dataset,
            len(groups),
            sum(group.levels.is_mixed for group in groups),
            sum(len(group.levels.each) for group in groups),
            sum(group.levels.right for group in groups),
        )
        for dataset, groups in sorted(datasets.items())
    )


def is_cut(completion: Sampled) -> bool:
    """Return whether a completion reached the limit. An empty one did not: its prompt did not fit into the model."""
    return completion.finish == "length" and bool(completion.text or completion.tokens)


def is_over_bytes(completion: Sampled, max_tokens: int) -> bool:
    """Return whether a completion was cut at the bytes that the swarm keeps: at `max_tokens` it would have more tokens.
    A text without tokens does not tell.
    """
    return is_cut(completion) and 0 < len(completion.tokens or ()) < max_tokens
