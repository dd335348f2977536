"""What the database keeps as JSON for people who look at the node: each type is checked when a row is read.

Versions may add keys. A row of an older version lacks them, and a row of a later one has keys that are not named here.
"""

from collections.abc import Mapping
from typing import NotRequired, Required, TypedDict


class Round(TypedDict, total=False):
    """The metrics of one round, as METRICS explains them. A figure that could not be computed is None."""

    step: Required[int]
    at: float
    epoch: Required[int]
    counter: Required[int]
    published: bool
    reward: Required[float]
    local: Required[int]
    informative: Required[int]
    replayed: int
    external: Required[int]
    drawn: int
    strangers_share: float
    external_weight: float | None
    loss: float | None
    grad_norm: float | None
    learning_rate: float | None
    rate_scale: float
    entropy: float | None
    mean_length: float | None
    truncated: float | None
    zero_advantage: float | None
    local_tokens: int
    external_tokens: int
    masked_tokens: int
    refused: int
    filtered: Mapping[str, int]
    skipped: str | None
    seconds: Required[Mapping[str, float]]


class Figures(TypedDict):
    """pass@1 with its interval."""

    pass_at_1: float
    low: float
    high: float


class Evaluation(Figures):
    """An evaluation on held-out prompts: the mean over tasks, and each task."""

    step: int
    at: NotRequired[float]
    """Unix time; the rounds that the node played alone have none."""
    level: NotRequired[float]
    per_task: Mapping[str, Figures]
    samples: NotRequired[int]


class Wait(TypedDict):
    """Something that the node waits for."""

    what: str
    until: float
    """Unix time."""


class Shards(TypedDict):
    """How much of the swarm a node hears."""

    followed: tuple[int, ...]
    all: int


class SessionFacts(TypedDict, total=False):
    """What only the running process knows. All of it is missing before the first start."""

    started: float
    stopped: float
    """Unix time; a session without it runs, or was killed."""
    peer_id: str
    swarm: str
    network_id: str
    genesis: int
    epoch_seconds: int
    page: str
    """Address of the page without its token; empty without a page."""
    addresses: tuple[str, ...]
    connected: tuple[str, ...]
    waiting: int
    """Rollouts in the pending queue."""
    waits: tuple[Wait, ...]
    shards: Shards
    notices: tuple[str, ...]
    """The last ones, oldest first."""
