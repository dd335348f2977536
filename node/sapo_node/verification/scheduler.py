"""Verification on demand: from the inbox to the pool, as much as the learner needs and no more."""

import logging
import random

from sapo_node.ingest.pending import PendingQueue
from sapo_node.sampling.buffer import Pool
from sapo_node.trust.constants import PeerState
from sapo_node.trust.defences import DEFENDED, Defences
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Verifier

logger = logging.getLogger(__name__)

MAX_GIVING = 1_024
"""Untrusted peers remembered as having begun to earn the state healthy."""


class VerificationScheduler:
    """Draws rollouts, peers at random, has them verified, and keeps what holds."""

    def __init__(
        self,
        *,
        pending_queue: PendingQueue,
        verifier: Verifier,
        pool: Pool,
        ledger: Ledger,
        rng: random.Random,
        defences: Defences = DEFENDED,
    ) -> None:
        self._pending_queue = pending_queue
        self._verifier = verifier
        self._pool = pool
        self._ledger = ledger
        self._rng = rng
        self._defences = defences
        self._giving: dict[str, None] = {}
        """Peers whose rollout that was verified last brought them nearer to being healthy, longest ago first."""

    async def verify_pending(self, wanted: int) -> None:
        """Verify healthy peers until the pool could fill `wanted` twice, and untrusted peers within their budget.

        Nothing is verified for a node that wants nothing.
        """
        if not wanted:
            return
        have = sum(count for peer, count in self._pool.per_peer().items() if self._is_healthy(peer))
        for _ in range(2 * wanted):
            if have >= 2 * wanted:
                break
            fresh = await self._verify_one(healthy=True)
            if fresh is None:
                break
            have += fresh
        for _ in range(self._defences.untrusted_verifications):
            if await self._verify_one(healthy=False) is None:
                break

    async def _verify_one(self, *, healthy: bool) -> int | None:
        """Verify one rollout of a peer of the class; the groups it gave, None where none waits."""
        peers = [peer for peer in self._pending_queue.peers() if self._is_healthy(peer) is healthy]
        if not peers:
            return None
        peer = self._rng.choice(self._first(peers))
        rollout = self._pending_queue.draw(peer)
        if rollout is None:
            return None
        earned = self._ledger.of(peer).earned
        groups = await self._verifier.verify(rollout)
        self._note(peer, gave=self._ledger.of(peer).earned > earned)
        if not self._ledger.admits(peer):
            logger.warning("%s is banned: %s", peer, ", ".join(map(str, self._ledger.offences(peer))))
            self._pending_queue.forget(peer)
            self._pool.forget(peer)
            return 0
        self._pool.add(groups)
        return len(groups)

    def _first(self, peers: list[str]) -> list[str]:
        """Of those who wait, whose turn it is: where strangers are many, turns spread over all would promote nobody, so
        a peer that can become healthy comes first. If its rollout yields nothing, it loses that place.
        """
        if not self._defences.begun_first:
            return peers
        return [peer for peer in peers if peer in self._giving and self._ledger.can_earn(peer)] or peers

    def _note(self, peer: str, *, gave: bool) -> None:
        self._giving.pop(peer, None)
        if gave:
            self._giving[peer] = None
        if len(self._giving) > MAX_GIVING:
            del self._giving[next(iter(self._giving))]

    def _is_healthy(self, peer: str) -> bool:
        return self._ledger.state(peer) is PeerState.HEALTHY
