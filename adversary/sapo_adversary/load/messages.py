"""The messages of publishers: rollouts of a chosen size, valid or with one fault.

The keys are the same in each load test, and a key that signs two contents for one counter is banned for good. So a
counter is used when its time has come and not before, and a test uses no counter whose time came before the test.
"""

import hashlib
from itertools import count

from sapo_adversary.attacks.kit import Group, Key, Kit
from sapo_node.trust.constants import UNTRUSTED_COUNTERS
from sapo_protocol import Manifest, encode_message, epoch_at, epoch_start, seal

VALID = ("valid",)
BAD = ("forged", "stale", "garbage")
"""Kinds of messages. Bad ones have a signature that does not hold, are of an epoch long over, or no message at all."""

_REST_BYTES = 100
"""Bytes of a body beside its texts, about: the keys of maps, the answer."""
_STALE_EPOCHS = 5


class Messages:
    """The messages of all publishers; each key has its own counters."""

    def __init__(self, manifest: Manifest, kit: Kit, began: float) -> None:
        """`began` is the Unix time at which the load test began."""
        self._manifest = manifest
        self._kit = kit
        self._number = count()
        self._per_second = manifest.max_rounds * UNTRUSTED_COUNTERS / manifest.epoch_seconds
        """Counters of a key whose time comes in one second. An epoch has as many as a stranger may use."""
        self._began = epoch_at(manifest, began)
        self._newest_before = self._newest(began)
        self._used: dict[tuple[bytes, int], int] = {}
        """The last counter of each key in an epoch."""

    def make(self, kind: str, key: Key, now: float, size: int) -> bytes:
        """One message, `valid` or one of BAD, of about `size` bytes. Raises ValueError if the key has used all
        counters whose time has come.
        """
        if kind == "garbage":
            return hashlib.shake_256(next(self._number).to_bytes(8)).digest(size)
        epoch, counter = self._next(key, now)
        if kind == "stale":
            epoch -= _STALE_EPOCHS
        groups = self._groups(key, epoch, counter, size)
        envelope = seal(
            self._kit.payload(epoch, counter, groups),
            issuer=key.issuer,
            sign=(lambda signed: key.sign(signed + b"!")) if kind == "forged" else key.sign,
            network_id=self._manifest.network_id,
        )
        return encode_message(envelope, tuple(group.body for group in groups))

    def _next(self, key: Key, now: float) -> tuple[int, int]:
        """The epoch and the next counter of a key."""
        epoch = epoch_at(self._manifest, now)
        counter = self._used.get((key.issuer, epoch), self._newest_before if epoch == self._began else -1) + 1
        if counter > self._newest(now):
            raise ValueError(
                f"a user has {self._per_second:g} messages a second in this swarm: give more users, or a lower rate"
            )
        self._used[key.issuer, epoch] = counter
        return epoch, counter

    def _newest(self, now: float) -> int:
        """The newest counter whose time has come."""
        return int(self._per_second * (now - epoch_start(self._manifest, epoch_at(self._manifest, now))))

    def _groups(self, key: Key, epoch: int, counter: int, size: int) -> list[Group]:
        """The fewest groups that hold this number of bytes, half of their completions correct."""
        each = self._manifest.max_completion_bytes * self._manifest.completions
        groups = -(-size // each)
        length = size // (groups * self._manifest.completions) - _REST_BYTES
        return [self._group(key, epoch, counter, k, length) for k in range(groups)]

    def _group(self, key: Key, epoch: int, counter: int, k: int, length: int) -> Group:
        task = self._kit.task(key, epoch, counter, k)
        texts = [f"{'So. ' * (length // 4)}{text}" for text in self._kit.answers(task, self._kit.half)]
        return self._kit.group(task, texts, self._kit.half)
