"""The messages of publishers: rollouts of a chosen size, valid or with one fault."""

import hashlib
from itertools import count

from sapo_adversary.attacks.kit import Group, Key, Kit
from sapo_protocol import Manifest, encode_message, seal

VALID = ("valid",)
BAD = ("forged", "stale", "garbage")
"""Kinds of messages. Bad ones have a signature that does not hold, are of an epoch long over, or no message at all."""

_REST_BYTES = 100
"""Of a text's share in a body, about: keys of maps, the answer."""
_STALE_EPOCHS = 5


class Messages:
    """The messages of all publishers; each key has its own counters."""

    def __init__(self, manifest: Manifest, kit: Kit) -> None:
        self._manifest = manifest
        self._kit = kit
        self._number = count()

    def make(self, kind: str, key: Key, epoch: int, size: int) -> bytes:
        """One message, `valid` or one of BAD, of about `size` bytes. Raises ValueError where the key has no more rounds
        in this epoch.
        """
        if kind == "garbage":
            return hashlib.shake_256(next(self._number).to_bytes(8)).digest(size)
        if kind == "stale":
            epoch -= _STALE_EPOCHS
        counter = self._kit.counter(key, epoch)
        if counter is None:
            raise ValueError("this key has no more rounds in this epoch: give more users, or a lower rate")
        groups = self._groups(key, epoch, counter, size)
        envelope = seal(
            self._kit.payload(epoch, counter, groups),
            issuer=key.issuer,
            sign=(lambda signed: key.sign(signed + b"!")) if kind == "forged" else key.sign,
            network_id=self._manifest.network_id,
        )
        return encode_message(envelope, tuple(group.body for group in groups))

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
