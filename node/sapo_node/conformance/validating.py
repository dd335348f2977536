"""Sets up the node's validator for the vectors: an empty database, a fixed time, and every peer healthy."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.app.state import SCHEMA
from sapo_node.ingest.ignored import Ignored
from sapo_node.ingest.pending import PendingQueue
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.validator import Ingest
from sapo_node.net.interface import Verdict
from sapo_node.processes.clock import Clock
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.trust.constants import Tier
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Unusable
from sapo_protocol import LocalError, Manifest, peer_id

_OWN_KEY = Identity(Ed25519PrivateKey.generate())
"""The key of the node that validates. It signs nothing, and no vector uses it."""
_SENDER = peer_id(bytes(32))
"""The peer that sends every message."""

LAYERS: Mapping[str, str] = MappingProxyType(
    {
        Ignored.DUPLICATE: "replay",
        Ignored.OUTSIDE_WINDOW: "window",
        Ignored.EQUIVOCATION: "equivocation",
        Unusable.OTHER_TASK: "digest",
        Unusable.FALSE_CLAIM: "claims",
    }
)
"""Maps the node's reasons to the layers of the spec. Any other reason is local policy and keeps its own text."""


class Refused(Exception):
    """A layer refused, but raised no RemoteError."""

    def __init__(self, layer: str) -> None:
        super().__init__(layer)
        self.layer = layer


@dataclass(frozen=True)
class _FixedClock(Clock):
    time: float

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time


class _OpenLedger(Ledger):
    """Tiers are local policy, which no vector tests: here every peer is a friend."""

    def tier(self, peer: str) -> Tier:
        del peer
        return Tier.FRIEND


def validator_at(manifest: Manifest, now: float = 0.0) -> Ingest:
    """Return the node's validator with an empty database, at a fixed time in Unix seconds."""
    database, rng = Database(None, SCHEMA), random.Random(0)  # noqa: S311
    ledger = _OpenLedger(database)
    return Ingest(
        SwarmContext(manifest, _FixedClock(now), _OWN_KEY, rng),
        database=database,
        counters=Counters(database, manifest, now=now, key_is_new=True, rng=rng),
        ledger=ledger,
        equivocation_handler=EquivocationHandler(ledger),
        pending_queue=PendingQueue(database, manifest, rng=rng),
        message_store=MessageStore(manifest),
        on_fatal=_stop,
    )


def _stop(error: LocalError) -> None:
    raise error


def refusal_of(validator: Ingest, handle: Callable[[str, bytes], Awaitable[Verdict]], data: bytes) -> str | None:
    """Return the layer that refuses a message, or None if the validator accepts it."""
    before = validator.refused.copy()
    if trio.run(handle, _SENDER, data) in (Verdict.ACCEPT, Verdict.KEEP):
        return None
    (reason,) = validator.refused - before
    return LAYERS.get(reason, reason)
