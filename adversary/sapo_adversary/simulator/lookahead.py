"""Counters of a control arm: of the next eight, the node plays the one whose groups are most likely to be informative.

Rule DUTY-3 allows gaps between counters, and the assignment gives each counter its tasks. A node that looks ahead skips
counters whose tasks it always solves or never solves, by its own pass rates. Nodes do not look ahead;
docs/research/report.md says why.
"""

import random

from sapo_node.groups.prompt import task_name
from sapo_node.sampling.external import saved_pass_rates
from sapo_node.sampling.weights import PassRates
from sapo_node.storage.counters import Counters, Slot
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.trust.constants import UNTRUSTED_COUNTERS
from sapo_protocol import Manifest, assign, epoch_start

COUNTERS = 8
"""Counters among which the node chooses, at most."""
EXPLORATION = 0.1
"""Share of the rounds that take the next counter, whatever its tasks are."""


class LookingAhead(Counters):
    """Reserves the chosen counter, and with it all counters before it.

    The node skips counters only while it has used a smaller share of the counters of an untrusted peer than has passed
    of the epoch. So it never runs out of counters that peers accept before the epoch ends.
    """

    def __init__(
        self, database: Database, manifest: Manifest, identity: Identity, groups: int, *, now: float, rng: random.Random
    ) -> None:
        """The node plays `groups` groups a round."""
        super().__init__(database, manifest, now=now, key_is_new=True, rng=rng)
        self._issuer = identity.public_key
        self._groups = groups

    def reserve(self, now: float) -> Slot | None:
        """See `Counters.reserve`."""
        slot = super().reserve(now)
        if slot is not None:
            for _ in range(self._choose(slot, now) - slot.counter):
                slot = super().reserve(now)
        return slot

    def _choose(self, first: Slot, now: float) -> int:
        """Return the counter to play, if `first` is the first unused one."""
        passed = (now - epoch_start(self._manifest, first.epoch)) / self._manifest.epoch_seconds
        evenly_used = int(UNTRUSTED_COUNTERS * self._manifest.max_rounds * passed)
        end = min(first.counter + COUNTERS, evenly_used)
        if end <= first.counter or self._rng.random() < EXPLORATION:
            return first.counter
        known = saved_pass_rates(self._database)
        return max(range(first.counter, end), key=lambda each: self._informative(known, first.epoch, each))

    def _informative(self, known: PassRates, epoch: int, counter: int) -> float:
        """Return the number of informative groups to expect. A task that the node has not had yet counts as one."""
        specs = [assign(self._manifest, self._issuer, epoch, counter, k).spec for k in range(self._groups)]
        rates = [known.pass_rate(task_name(self._manifest, each.dataset, each.config)) for each in specs]
        size = self._manifest.completions
        return sum(1 if rate is None else 1 - rate**size - (1 - rate) ** size for rate in rates)
