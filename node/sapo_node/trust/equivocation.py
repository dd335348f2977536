"""Equivocation: the node bans the issuer for good, from evidence alone, and publishes the evidence to other peers.

Anybody can make any number of keys that equivocate. So evidence against peers without verified groups has a budget per
epoch (UNKNOWN_BANS). Evidence against all other peers has none.
"""

import logging
from collections import deque

from sapo_node.trust.constants import Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import Equivocation, peer_id

logger = logging.getLogger(__name__)


class EquivocationHandler:
    """Bans equivocators and publishes the evidence."""

    def __init__(self, ledger: Ledger, *, limits: Limits = LIMITS) -> None:
        self._ledger = ledger
        self._most = limits.unknown_bans
        self._unknown_peers = 0
        self._broadcast: set[str] = set()
        self._to_publish: deque[bytes] = deque(maxlen=self._most)

    def advance(self) -> None:
        """Begin an epoch with full budgets."""
        self._unknown_peers = 0
        self._broadcast.clear()

    def hears(self, issuer: bytes) -> bool:
        """Return whether the node checks evidence against this issuer: it is not banned, and budget is left."""
        peer = peer_id(issuer)
        if self._ledger.banned_by_evidence(peer) is not None:
            return False
        return not self._is_unknown(peer) or self._unknown_peers < self._most

    def ban(self, proof: Equivocation, *, publish: bool) -> str:
        """Ban the issuer for good, and return its peer id. `publish` evidence that this node found itself."""
        peer = peer_id(proof.issuer)
        self._unknown_peers += self._is_unknown(peer)
        self._ledger.ban(proof)
        logger.warning("%s signed two envelopes for epoch %d, counter %d", peer, proof.epoch, proof.counter)
        if publish:
            self._to_publish.append(proof.evidence)
        return peer

    def next_evidence(self, peer: str) -> None:
        """Publish evidence again, once per issuer and epoch: a peer still forwards messages of the banned issuer."""
        evidence = self._ledger.banned_by_evidence(peer)
        if evidence is None or peer in self._broadcast or len(self._broadcast) >= self._most:
            return
        self._broadcast.add(peer)
        self._to_publish.append(evidence)

    def _is_unknown(self, peer: str) -> bool:
        return self._ledger.tier(peer) is Tier.STRANGER and self._ledger.of(peer).earned == 0

    def take_announcements(self) -> list[bytes]:
        """Take the evidence that the node publishes now; each message is taken once."""
        taken = list(self._to_publish)
        self._to_publish.clear()
        return taken
