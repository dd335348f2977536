"""What a node knows, gathered from its database for people and scripts: the same for a running node and a stopped
one.
"""

import random
from dataclasses import asdict, dataclass
from typing import Any

from sapo_node.contribution import TaskAnswers
from sapo_node.curve import Curve
from sapo_node.database import Database
from sapo_node.history import History
from sapo_node.pool import Pool
from sapo_node.trainer import LOCAL, trained_per_peer
from sapo_node.trust.ledger import Ledger

CURVE_POINTS = 60
LAST_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class PeerView:
    """One peer."""

    peer: str
    standing: str
    trust: float
    verified: int
    """Groups that counted towards its standing."""
    waiting: int
    """Verified groups in the pool."""
    trained_groups: int
    trained_tokens: int


@dataclass(frozen=True, slots=True)
class Overview:
    """A node at one moment."""

    session: dict[str, Any]
    """Peer id, swarm, addresses, connected peers, the last notices."""
    curve: Curve | None
    """None before the first round."""
    exams: list[dict[str, Any]]
    """Held-out pass@1 after some of the rounds, with its interval, oldest first."""
    rounds: list[dict[str, Any]]
    """The last rounds, oldest first."""
    counts: dict[str, int]
    """Accepted envelopes and refusals by reason, since the state was made."""
    peers: list[PeerView]
    own_tokens: int
    """Tokens trained on that this node generated itself."""
    answers: list[TaskAnswers]
    """What was shared without training, by task."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def overview(database: Database, *, rounds: int = LAST_ROUNDS) -> Overview:
    """Gather everything, with so many of the last rounds; reads only."""
    history = History(database)
    trained = trained_per_peer(database)
    return Overview(
        history.session(),
        history.curve(CURVE_POINTS),
        history.exams(),
        history.rounds(rounds),
        history.counts(),
        _peers(database, trained),
        trained.get(LOCAL, (0, 0))[1],
        history.answers(),
    )


def _peers(database: Database, trained: dict[str, tuple[int, int]]) -> list[PeerView]:
    """All peers of whom anything is known, the most trained on first."""
    ledger = Ledger(database, rng=random.Random(0))  # noqa: S311 - draws nothing here
    waiting = Pool(database).per_peer()
    peers = {account.peer for account in ledger.accounts()} | set(waiting) | (set(trained) - {LOCAL})
    views = []
    for peer in peers:
        account, (groups, tokens) = ledger.of(peer), trained.get(peer, (0, 0))
        views.append(
            PeerView(
                peer,
                account.standing.value,
                round(account.trust, 3),
                account.earned,
                waiting.get(peer, 0),
                groups,
                tokens,
            )
        )
    return sorted(views, key=lambda view: (-view.trained_tokens, view.peer))
