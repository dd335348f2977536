"""The groups of completions that a node handles: verified groups of peers, and local groups.

A group is G completions of one task, with one reward each.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from sapo_node.groups.messages import Sampled
from sapo_protocol import Completion

GroupKey = tuple[str, int, int, int]
"""(peer, epoch, counter, k): group k of the peer's round."""


@dataclass(frozen=True, slots=True)
class VerifiedGroup:
    """G completions by a peer of a task that was assigned to it, with the rewards that this node computed."""

    peer: str
    epoch: int
    counter: int
    k: int
    dataset: str
    """The name of its task (`task_name`)."""
    prompt: str
    completions: tuple[Completion, ...]
    rewards: tuple[bool, ...]
    lengths: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """UTF-8 bytes of each completion. Counted once, because every round reads them while the group waits."""

    @property
    def place(self) -> GroupKey:
        """The key of this group."""
        return self.peer, self.epoch, self.counter, self.k

    @property
    def correct(self) -> tuple[str, ...]:
        """The texts of its correct completions."""
        return self.correct_without(())

    def correct_without(self, rejected: Container[int]) -> tuple[str, ...]:
        """The texts of its correct completions without some of them, by number."""
        pairs = enumerate(zip(self.completions, self.rewards, strict=True))
        return tuple(each.text for number, (each, reward) in pairs if reward and number not in rejected)

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
    rewards: tuple[bool, ...]
    advantages: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """Counts of the groups that a node shared for one task of the swarm."""

    dataset: str
    groups: int
    informative: int
    """Groups with correct and incorrect completions. All other groups have zero advantage."""
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
            sum(any(group.advantages) for group in groups),
            sum(len(group.rewards) for group in groups),
            sum(sum(group.rewards) for group in groups),
        )
        for dataset, groups in sorted(datasets.items())
    )


def is_cut(completion: Sampled) -> bool:
    """Whether a completion reached the limit. An empty one did not: the model could not be asked its prompt."""
    return completion.finish == "length" and bool(completion.text or completion.tokens)


def is_over_bytes(completion: Sampled, max_tokens: int) -> bool:
    """Whether a completion was cut at the bytes that the swarm keeps: at `max_tokens` it would have so many tokens. A
    text without tokens does not tell.
    """
    return is_cut(completion) and 0 < len(completion.tokens or ()) < max_tokens
