import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_adversary.attacks.gossip.kit import GossipKit
from sapo_adversary.attacks.gossip.sybils import BEAT_SECONDS, SilentSybils
from sapo_adversary.attacks.kit import Key, Kit, Solution
from sapo_protocol import Assignment

if TYPE_CHECKING:
    from sapo_adversary.attacks.gossip.peer import Link


class MessageFlood(SilentSybils):
    """A few peers publish many times as many rollouts as an honest node, each under a new key.

    Each rollout is valid, and gives no group to train on. That shows only when it is verified.
    """

    id = "message-flood"

    def __init__(self, kit: GossipKit, *, per_heartbeat: int = 10) -> None:
        """`per_heartbeat` is the number of messages that each host publishes every two seconds."""
        super().__init__(kit)
        self._per_heartbeat = per_heartbeat
        self._kit = Kit(kit.manifest, (), _unsolved, kit.rng)
        self._rollouts = self._signed_rollouts()
        self._began = 0.0
        self._made: dict[tuple[str, int], list[Any]] = {}
        """The messages of a host at one of its heartbeats: the same for all links, as of an honest peer."""

    async def play(self) -> None:
        """Run all hosts."""
        self._began = trio.current_time()
        await super().play()

    async def heartbeat(self, link: "Link") -> None:
        """Send GRAFT, then the messages of this heartbeat."""
        await super().heartbeat(link)
        place = (link.peer.address, int((trio.current_time() - self._began) / BEAT_SECONDS))
        if place not in self._made:
            self._made[place] = [
                link.peer.signed(rollout, self.kit.topic) for rollout in islice(self._rollouts, self._per_heartbeat)
            ]
        for message in self._made[place]:
            await link.publish(message)

    def _signed_rollouts(self) -> Iterator[bytes]:
        """Rollouts of the current epoch, each of a new key."""
        manifest = self.kit.manifest
        while True:
            private = Ed25519PrivateKey.from_private_bytes(self.kit.rng.randbytes(32))
            key = Key(private.public_key().public_bytes_raw(), private.sign)
            epoch = self.kit.epoch + int((trio.current_time() - self._began) / manifest.epoch_seconds)
            yield self._kit.message(key, epoch, 0, self._kit.flawless(key, epoch, 0, 4))


def _unsolved(task: Assignment) -> Solution:
    """The claims about a task that the attacker has not computed."""
    digest = hashlib.sha256(repr(task).encode()).digest()
    return Solution(task.spec.dataset, "", "unknown to me", digest, lambda _: "")
