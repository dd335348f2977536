"""Enters the epochs of a node, and reserves the counter of the next round."""

import logging

import trio

from sapo_node.ingest.validator import Ingest
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters, Slot
from sapo_node.trust.ledger import Ledger
from sapo_protocol import epoch_start

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
"""Seconds between two looks at the clock before the genesis."""


class Epochs:
    """Enters each epoch once, and reserves counters of the current epoch."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        counters: Counters,
        ledger: Ledger,
        ingest: Ingest,
    ) -> None:
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._counters = counters
        self._ledger = ledger
        self._ingest = ingest
        self._entered: int | None = None
        self.stopping = trio.Event()
        """Set this to stop the node: it finishes its round and starts no other."""
        self.waits_until: float | None = None
        """Unix time of the next epoch while the node waits for it."""

    def enter_current(self) -> float:
        """Enter the current epoch, unless the clock jumped there and is not believed yet. Return the Unix time that
        was looked at.
        """
        now = self._clock.now()
        self._counters.look(now, self._clock.steady())
        self.enter(self._counters.believed_epoch(now))
        return now

    def enter(self, epoch: int) -> None:
        """Do the work of a new epoch: end bans, promote untrusted peers, drop old messages and groups."""
        if epoch == self._entered:
            return
        self._entered = epoch
        self._ledger.at(epoch)
        self._ingest.advance(epoch)

    async def reserve(self) -> Slot | None:
        """Return the counter of the next round. If this epoch has none left, wait for its end and return None. Before
        the genesis, wait for the genesis and return None.
        """
        now = self.enter_current()  # the clock may be set before a second look
        slot = self._counters.reserve(now)
        if self._counters.epoch(now) < 0:
            await self._wait_for_genesis(now)
        elif slot is None:
            logger.warning("all %d rounds of this epoch are played; waiting for the next", self._manifest.max_rounds)
            self.waits_until = epoch_start(self._manifest, self._counters.epoch(now) + 1)
            await self.pause(max(0.0, self.waits_until - now))
            self.waits_until = None
        return slot

    async def _wait_for_genesis(self, now: float) -> None:
        """Wait until the swarm begins. The clock may be set meanwhile: a machine may start with one that is wrong."""
        while (left := self._manifest.genesis - now) > 0 and not self.stopping.is_set():
            await self.pause(min(left, _LOOK_SECONDS))
            now = self.enter_current()

    async def pause(self, seconds: float) -> None:
        """Wait for this many seconds, or until `stopping` is set."""
        with trio.move_on_after(seconds):
            await self.stopping.wait()
