"""The ledger of one node over its rounds, by what its peers really are."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from sapo_node.trust.constants import PeerState
from sapo_node.trust.ledger import Ledger


@dataclass(slots=True)
class PeerStates:
    """The ledger of one node, round by round."""

    trust: dict[str, list[float]] = field(default_factory=dict)
    """Mean trust in the peers of a role, after each round."""
    healthy: dict[str, list[int]] = field(default_factory=dict)
    """How many peers of a role are healthy, after each round."""
    banned: dict[str, int] = field(default_factory=dict)
    """The round after which a peer was first seen banned."""
    last: dict[str, Counter[str]] = field(default_factory=dict)
    """By role, how many peers have each state at the end."""

    def look(self, ledger: Ledger, roles: Mapping[str, str], step: int) -> None:
        """Enter the state after a round; `roles` says of every peer what it is."""
        accounts: dict[str, list[float]] = {}
        self.last = {}
        for peer, role in roles.items():
            account = ledger.of(peer)
            accounts.setdefault(role, []).append(account.trust)
            self.last.setdefault(role, Counter())[account.state] += 1
            if account.state is PeerState.BANNED:
                self.banned.setdefault(peer, step)
        for role, trusts in accounts.items():
            self.trust.setdefault(role, []).append(round(fmean(trusts), 4))
            self.healthy.setdefault(role, []).append(self.last[role][PeerState.HEALTHY])

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "trust": self.trust,
            "healthy": self.healthy,
            "banned": dict(sorted(self.banned.items())),
            "last": {role: dict(sorted(counts.items())) for role, counts in sorted(self.last.items())},
        }
