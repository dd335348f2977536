"""The epochs of a node: what is due when one begins, and the counter of the next round."""

import logging

import trio

from sapo_node.app.tally import Tally
from sapo_node.ingest.validator import Ingest
from sapo_node.sampling.buffer import Pool
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters, Slot
from sapo_node.trust.ledger import Ledger
from sapo_protocol import epoch_start

logger = logging.getLogger(__name__)


class Epochs:
    """Enters each epoch once, and hands out the counters of the epoch that runs."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        counters: Counters,
        ledger: Ledger,
        ingest: Ingest,
        pool: Pool,
        tally: Tally,
    ) -> None:
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._counters = counters
        self._ledger = ledger
        self._ingest = ingest
        self._pool = pool
        self._tally = tally
        self._entered: int | None = None
        self.stopping = trio.Event()
        """Set to end the node in order: it starts no further round."""

    def enter_current(self) -> None:
        """Do what is due once in the epoch that runs."""
        self.enter(self._counters.epoch(self._clock.now()))

    def enter(self, epoch: int) -> None:
        """Do what is due once per epoch: end bans, promote untrusted peers, drop old messages and groups."""
        if epoch == self._entered:
            return
        self._entered = epoch
        self._ledger.at(epoch)
        self._ingest.advance(epoch)
        self._tally.too_old(self._pool.advance(epoch))

    async def reserve(self) -> Slot | None:
        """The counter of the next round. None if this epoch has none left: then the next epoch has begun."""
        now = self._clock.now()
        self.enter_current()
        slot = self._counters.reserve(now)
        if slot is None:
            logger.warning("no rounds left in this epoch (of %d); waiting for the next", self._manifest.max_rounds)
            await self.pause(max(0.0, epoch_start(self._manifest, self._counters.epoch(now) + 1) - now))
        return slot

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the node is to stop."""
        with trio.move_on_after(seconds):
            await self.stopping.wait()
