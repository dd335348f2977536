"""The messages that this node can deliver to peers: envelopes of the open epochs with their bodies.

The store is in memory and bounded in bytes. A peer asks another node for what is not here.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from sapo_node.groups.book import Bodies, together
from sapo_protocol import InventoryItem, Manifest, Rollout, encode_message, shard_of

MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Kept:
    issuer: bytes
    epoch: int
    shard: int
    envelope: bytes
    bodies: Bodies
    bringer: str

    def size(self) -> int:
        return len(self.envelope) + sum(map(len, filter(None, self.bodies)))

    def held(self) -> int:
        return bits_of(self.bodies)


def bits_of(bodies: Bodies) -> int:
    """The bodies that are there, as bits by k."""
    return sum(1 << k for k, body in enumerate(bodies) if body is not None)


class MessageStore:
    """Envelopes by id, and sorted ids by epoch and shard, so that a listing costs what it lists."""

    def __init__(self, manifest: Manifest, max_bytes: int = MAX_BYTES) -> None:
        self._manifest = manifest
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: dict[bytes, _Kept] = {}  # in the order in which they came
        self._ids: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)

    def put(self, rollout: Rollout, *, bringer: str = "") -> None:
        """Keep an envelope that the peer `bringer` delivered, or add bodies to a kept one. Drops the oldest beyond
        MAX_BYTES.
        """
        envelope_id = rollout.opened.envelope_id
        envelope, bodies = rollout.opened.envelope, rollout.bodies
        if earlier := self._kept.get(envelope_id):
            bodies = together(envelope, bodies, earlier.bodies, most=self._manifest.max_message_bytes)
            bringer = earlier.bringer or bringer
            self._drop(envelope_id)
        epoch = rollout.header.epoch
        shard = shard_of(self._manifest, rollout.opened.issuer, epoch)
        kept = _Kept(rollout.opened.issuer, epoch, shard, envelope, bodies, bringer)
        self._kept[envelope_id] = kept
        insort(self._ids[epoch, shard], envelope_id)
        self._bytes += kept.size()
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def bodies(self, envelope_id: bytes) -> int | None:
        """The bodies of an envelope that are here, as bits by k; None if the envelope is not here."""
        kept = self._kept.get(envelope_id)
        return kept.held() if kept else None

    def held(self, envelope_id: bytes) -> Bodies:
        """The bodies of an envelope that are here; empty if the envelope is not here."""
        kept = self._kept.get(envelope_id)
        return kept.bodies if kept else ()

    def bringer(self, envelope_id: bytes) -> str:
        """The peer that delivered an envelope first; empty for an own envelope and one that is not here."""
        kept = self._kept.get(envelope_id)
        return kept.bringer if kept else ""

    def is_signed_by(self, issuer: bytes, envelope_id: bytes) -> bool:
        """Return whether an envelope is here and this issuer signed it."""
        kept = self._kept.get(envelope_id)
        return kept is not None and kept.issuer == issuer

    def listing(self, epoch: int, shards: int, after: bytes, most: int) -> list[InventoryItem]:
        """The first `most` envelopes of an epoch and of shards (bit s for shard s) with ids above `after`."""
        asked = (self._behind(epoch, shard, after) for shard in range(self._manifest.shards) if shards >> shard & 1)
        return [InventoryItem(each, self._kept[each].held()) for each in islice(merge(*asked), most)]

    def _behind(self, epoch: int, shard: int, after: bytes) -> Iterator[bytes]:
        ids = self._ids.get((epoch, shard), [])
        return map(ids.__getitem__, range(bisect_right(ids, after), len(ids)))

    def message(self, wanted: InventoryItem) -> bytes | None:
        """A message with the wanted bodies that are here; None if the envelope is not here."""
        kept = self._kept.get(wanted.envelope_id)
        if kept is None:
            return None
        bodies = (body if wanted.bodies >> k & 1 else None for k, body in enumerate(kept.bodies))
        return encode_message(kept.envelope, tuple(bodies))

    def forget_before(self, epoch: int) -> None:
        """Drop the epochs before this one: nobody may ask for them."""
        for old in [each for each in self._ids if each[0] < epoch]:
            for envelope_id in list(self._ids[old]):
                self._drop(envelope_id)

    def _drop(self, envelope_id: bytes) -> None:
        kept = self._kept.pop(envelope_id)
        self._bytes -= kept.size()
        ids = self._ids[kept.epoch, kept.shard]
        del ids[bisect_right(ids, envelope_id) - 1]
        if not ids:
            del self._ids[kept.epoch, kept.shard]
