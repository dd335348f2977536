"""The JSON that the database keeps for people who look at the node. `groups.codec` checks it when a row is read."""

from collections.abc import Mapping
from typing import Literal, NotRequired, Required, TypedDict

from sapo_node.groups.ranges import Amount, Count, Entropy, Finite, LearningRate, Norm, Share, Time, Total

Level = Literal["attention", "info"]
"""`attention` for what needs a person, `info` for the rest."""
Role = Literal["trains", "feeds", "contributes", "relays"]
"""How a node takes part: it trains, serves a trainer of another program, shares completions, or verifies and relays."""


class Round(TypedDict, total=False):
    """The metrics of one round, as METRICS explains them. A figure that could not be computed is None."""

    step: Required[Count]
    at: Time
    epoch: Required[int]
    counter: Required[int]
    published: bool
    reward: Required[Share]
    local: Required[Count]
    informative: Required[Count]
    replayed: Count
    external: Required[Count]
    drawn: Count
    strangers_share: Share
    external_weight: Share | None
    loss: Finite | None
    grad_norm: Norm | None
    learning_rate: LearningRate | None
    rate_scale: Share
    entropy: Entropy | None
    mean_length: Amount | None
    truncated: Share | None
    zero_advantage: Share | None
    local_tokens: Total
    external_tokens: Total
    masked_tokens: Total
    refused: Count
    filtered: Mapping[str, Count]
    skipped: str | None
    seconds: Required[Mapping[str, Amount]]


class Figures(TypedDict):
    """pass@1 with its interval."""

    pass_at_1: Share
    low: Share
    high: Share


class Evaluation(Figures):
    """An evaluation on held-out prompts: the mean over tasks, and each task."""

    step: Count
    at: Time
    level: NotRequired[Share]
    per_task: Mapping[str, Figures]
    samples: NotRequired[Count]


class Wait(TypedDict):
    """Something that the node waits for."""

    what: str
    until: Time
    """Unix time."""
    why: NotRequired[str]
    """Why the node publishes nothing until then; missing if it may publish."""


class Notice(TypedDict):
    """Something that a person may want to know."""

    at: Time
    """Unix time."""
    level: Level
    text: str


class Shards(TypedDict):
    """How much of the swarm a node hears."""

    followed: tuple[Count, ...]
    all: Count


class SessionFacts(TypedDict, total=False):
    """What only the running process knows. All of it is missing before the first start."""

    started: Time
    stopped: Time
    """Unix time; a session without it runs, or was killed."""
    failure: str
    """The error that ended the session; missing if none did."""
    role: Role
    takes_none: bool
    """The node is to take no external groups."""
    alone_since: Time
    """Unix time since which no peer is connected; missing if one is."""
    standing: Mapping[str, str]
    """What is wrong now, or awaited: a sentence, by the part of the node that says it and takes it back."""
    peer_id: str
    swarm: str
    network_id: str
    genesis: int
    epoch_seconds: Count
    page: str
    """Address of the page without its token; empty without a page."""
    addresses: tuple[str, ...]
    connected: tuple[str, ...]
    waiting: Count
    """Rollouts that wait for verification."""
    waits: tuple[Wait, ...]
    shards: Shards
    notices: tuple[Notice, ...]
    """The newest ones of each level; those that need a person come first, and of one level the newest."""
