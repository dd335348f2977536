"""The validator of a node with its parts at hand, on a clock that stands still until it is moved."""

import random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from context import KEY, context_of
from sapo_node.app.node import PARTS, Parts
from sapo_node.gossip.verdict import Verdict
from sapo_node.ingest.store import MessageStore
from sapo_node.processes.clock import Clock
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_protocol import LocalError, Manifest, peer_id

SENDER = peer_id(bytes([9]) * 32)


class ManualClock(Clock):
    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    steady = now


class ValidatorParts:
    """An ingest on a database, in epoch 5 of the tests' manifest."""

    sender = SENDER

    def __init__(
        self,
        database: Database,
        manifest: Manifest,
        rng: random.Random,
        key: Ed25519PrivateKey = KEY,
        *,
        trusted: tuple[str, ...] = (),
        parts: Parts = PARTS,
    ) -> None:
        self.manifest = manifest
        self.database = database
        self.clock = ManualClock(3_100)
        self.swarm = context_of(manifest, rng, clock=self.clock, key=key)
        self.fatal: list[LocalError] = []
        self.ledger = parts.ledger(database, trusted=trusted, limits=parts.limits)
        self.equivocation_handler = EquivocationHandler(self.ledger, limits=parts.limits)
        self.book = parts.book(database, manifest, rng=rng, tier=self.ledger.tier, limits=parts.limits, wire=parts.wire)
        self.message_store = MessageStore(manifest)
        self.counters = Counters(database, manifest, now=self.clock.now(), key_is_new=True, rng=rng)
        self.ingest = parts.ingest(
            self.swarm,
            database=database,
            counters=self.counters,
            ledger=self.ledger,
            equivocation_handler=self.equivocation_handler,
            window=parts.window(database, manifest),
            book=self.book,
            message_store=self.message_store,
            on_fatal=self.fatal.append,
            limits=parts.limits,
            wire=parts.wire,
        )

    async def verdict(self, message: bytes, sender: str = SENDER, *, shard: int = 0) -> Verdict:
        return await self.ingest.handle(sender, message, shard=shard)

    def refused(self) -> dict[str, int]:
        return dict(self.ingest.refused)
