"""Verification on demand: from rollouts that wait to groups on offer, as much as the learner needs and no more."""

import logging
from collections import Counter

from sapo_node.groups.book import Book
from sapo_node.groups.record import VerifiedGroup
from sapo_node.trust import constants
from sapo_node.trust.constants import PeerState, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Verifier
from sapo_protocol import peer_id

logger = logging.getLogger(__name__)


class VerificationScheduler:
    """Draws rollouts by lottery, has them verified, and enters in the book what was found."""

    def __init__(self, *, book: Book, verifier: Verifier, ledger: Ledger) -> None:
        self._book = book
        self._verifier = verifier
        self._ledger = ledger

    async def verify_pending(self, wanted: int) -> None:
        """Give the tiers turns of one draw each, while the offer could not fill `wanted` twice from that tier alone.

        A tier has at most VERIFICATIONS_PER_ROUND turns. Nothing is verified for a node that wants nothing.
        """
        have: Counter[Tier] = Counter()
        for peer, count in self._book.per_peer().items():
            have[self._ledger.tier(peer)] += count
        for _ in range(constants.VERIFICATIONS_PER_ROUND):
            for tier in Tier:
                if have[tier] < 2 * wanted:
                    have[tier] += await self._verify_one(tier)

    async def _verify_one(self, tier: Tier) -> int:
        """Verify what one turn draws of a tier; how many groups it gave. A peer on probation comes after all others."""
        rollout = self._book.draw(tier, last=self._is_on_probation)
        if rollout is None:
            return 0
        found = await self._verifier.verify(rollout, known=self._book.judged(rollout))
        peer = peer_id(rollout.opened.issuer)
        groups = sum(isinstance(finding, VerifiedGroup) for finding in found.values())
        self._book.lottery.credit(peer, groups)
        self._book.judge(rollout, found)
        if not self._ledger.admits(peer):
            logger.warning("%s is banned: %s", peer, ", ".join(map(str, self._ledger.offences(peer))))
            self._book.forget(peer)
            return 0
        return groups

    def _is_on_probation(self, peer: str) -> bool:
        return self._ledger.state(peer) is PeerState.PROBATION
