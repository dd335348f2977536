"""Chooses the rounds that a node publishes, by how many of its groups peers request.

Counter c is published if c is divisible by an interval m. The node trains on its other rounds without publishing them,
so its counters have gaps. m begins at 1. After each epoch the node compares the requests for its groups with the groups
that it published:

- fewer than LEAST_REQUESTS for each group: m doubles, up to MAX_INTERVAL;
- more than one for each group: m halves, down to 1.

Only a peer that fetches bodies on demand shows that it needs a group. A whole message has no requests, so publishing
one sets m to 1. A round with a group of a rare task is always published.

A request only ever adds published rounds. So a peer with many keys can make a node publish each round, which the node
does anyway where messages are whole, and it cannot make the node publish fewer.
"""

from sapo_protocol import Manifest, assign

LEAST_REQUESTS = 0.25
"""Requests for each published group below which a node publishes fewer rounds."""
MAX_INTERVAL = 8
"""The largest m: a node publishes at least every eighth round."""
RARE_SHARE = 0.25
"""A task is rare if its weight is below this share of the mean weight in the catalogue."""


class PublishByNeed:
    """The interval m of one node, and the counts of this epoch."""

    def __init__(self, manifest: Manifest, issuer: bytes) -> None:
        """`issuer` is the public key of this node."""
        self._manifest = manifest
        self._issuer = issuer
        mean = sum(spec.weight for spec in manifest.tasks) / len(manifest.tasks)
        self._rare = [spec for spec in manifest.tasks if spec.weight < RARE_SHARE * mean]
        self._epoch: int | None = None
        self._groups = 0
        self._requests = 0
        self.interval = 1

    def is_due(self, epoch: int, counter: int, groups: int) -> bool:
        """Return whether to publish a round of so many groups. A new epoch first sets m anew."""
        if epoch != self._epoch:
            self._enter(epoch)
        return counter % self.interval == 0 or self._has_rare(epoch, counter, groups)

    def published(self, groups: int, *, whole: bool) -> None:
        """Count the groups of a published round; `whole` if its bodies went with it."""
        if whole:
            self.interval = 1
        else:
            self._groups += groups

    def requested(self, groups: int) -> None:
        """Count groups of this node that a peer requested to train on."""
        self._requests += groups

    def _enter(self, epoch: int) -> None:
        if self._requests < LEAST_REQUESTS * self._groups:
            self.interval = min(2 * self.interval, MAX_INTERVAL)
        elif self._requests > self._groups:
            self.interval = max(self.interval // 2, 1)
        self._epoch, self._groups, self._requests = epoch, 0, 0

    def _has_rare(self, epoch: int, counter: int, groups: int) -> bool:
        tasks = (assign(self._manifest, self._issuer, epoch, counter, k).spec for k in range(groups))
        return bool(self._rare) and any(spec in self._rare for spec in tasks)
