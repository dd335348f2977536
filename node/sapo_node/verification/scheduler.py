"""Verification on demand: from the inbox to the pool, as much as the learner needs and no more."""

import logging
from collections import Counter

from sapo_node.ingest.pending import PendingQueue
from sapo_node.sampling.buffer import Pool
from sapo_node.trust import constants
from sapo_node.trust.constants import PeerState, Tier
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Verifier
from sapo_protocol import peer_id

logger = logging.getLogger(__name__)


class VerificationScheduler:
    """Draws rollouts by lottery, has them verified, and keeps what holds."""

    def __init__(
        self,
        *,
        pending_queue: PendingQueue,
        verifier: Verifier,
        pool: Pool,
        ledger: Ledger,
    ) -> None:
        self._pending_queue = pending_queue
        self._verifier = verifier
        self._pool = pool
        self._ledger = ledger

    async def verify_pending(self, wanted: int) -> None:
        """Give the tiers turns of one draw each, while the pool could not fill `wanted` twice from that tier alone.

        A tier has at most VERIFICATIONS_PER_ROUND turns. Nothing is verified for a node that wants nothing.
        """
        have: Counter[Tier] = Counter()
        for peer, count in self._pool.per_peer().items():
            have[self._ledger.tier(peer)] += count
        for _ in range(constants.VERIFICATIONS_PER_ROUND):
            for tier in Tier:
                if have[tier] < 2 * wanted:
                    have[tier] += await self._verify_one(tier)

    async def _verify_one(self, tier: Tier) -> int:
        """Verify what one turn draws of a tier; how many groups it gave. A peer on probation comes after all others."""
        rollout = self._pending_queue.draw(tier, last=self._is_on_probation)
        if rollout is None:
            return 0
        rest_waits = self._pending_queue.waits(rollout.opened.envelope_id)
        groups = await self._verifier.verify(rollout, rest_waits=rest_waits)
        peer = peer_id(rollout.opened.issuer)
        self._pending_queue.credit(peer, len(groups))
        if not self._ledger.admits(peer):
            logger.warning("%s is banned: %s", peer, ", ".join(map(str, self._ledger.offences(peer))))
            self._pending_queue.forget(peer)
            self._pool.forget(peer, arriving=groups)
            return 0
        self._pool.add(groups)
        return len(groups)

    def _is_on_probation(self, peer: str) -> bool:
        return self._ledger.state(peer) is PeerState.PROBATION
