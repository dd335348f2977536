"""What arrives from the network becomes a signed rollout in the pending queue, or a counted refusal.

Checks go from cheap to costly, and each says who is to blame. REJECT is only for what the bytes alone prove wrong,
and is charged to the peer that sent them, never to the author they name. What depends on this node's clock, ledger or
load is IGNORE and costs nobody anything. Nothing is scored here: that happens later, on demand, off the gossip path.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sapo_node.ingest.ignored import Ignored
from sapo_node.ingest.pending import ENDED_LINK, PendingQueue
from sapo_node.ingest.seen import ReplayWindow, bits_of
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.wire import WIRE, Wire
from sapo_node.net.interface import Verdict
from sapo_node.net.link_budget import LinkBudget
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters, KeyInUseElsewhere
from sapo_node.storage.database import Database, StateError
from sapo_node.trust.constants import Fact, Tier
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import (
    Header,
    InventoryItem,
    Layer,
    LocalError,
    Opened,
    RemoteError,
    Sealed,
    decode_evidence,
    encode_evidence,
    match_bodies,
    peer_id,
    prove_equivocation,
    require_shard,
)

logger = logging.getLogger(__name__)


Refused = Callable[[str, Sealed | None, str], None]
"""`refused(sender, envelope if there is one, why)`."""


class _Ignore(Exception):
    def __init__(self, reason: Ignored) -> None:
        super().__init__(reason)
        self.reason = reason


class Ingest:
    """The validator between the network and the node."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        database: Database,
        counters: Counters,
        ledger: Ledger,
        equivocation_handler: EquivocationHandler,
        window: ReplayWindow,
        pending_queue: PendingQueue,
        message_store: MessageStore,
        on_fatal: Callable[[LocalError], None],
        on_refused: Refused | None = None,
        limits: Limits = LIMITS,
        wire: Wire = WIRE,
    ) -> None:
        """`on_fatal` is called with what must stop the node, `on_refused` with every message that was not accepted."""
        self._database = database
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._issuer = swarm.identity.public_key
        self._counters = counters
        self._ledger = ledger
        self._equivocation_handler = equivocation_handler
        self._pending_queue = pending_queue
        self._message_store = message_store
        self._on_fatal = on_fatal
        self._on_refused = on_refused
        self._limits = limits
        self._wire = wire
        self._sealed: Sealed | None = None
        """The envelope of the rollout at hand, as soon as there is one."""
        self._window = window
        self._messages = LinkBudget(rate=limits.messages_per_second, burst=limits.message_burst)
        self._strangers = LinkBudget(rate=limits.strangers_per_second, burst=limits.strangers_burst)
        """What each sender may bring of strangers."""
        self._links: set[str] = set()
        """The peers that are connected."""
        self.accepted = 0
        self.gossiped: Counter[int] = Counter()
        """Of the accepted ones, those that gossip brought, by shard."""
        self.pulled = 0
        """Of the accepted ones, those that this node had asked for."""
        self.evidence = 0
        self.refused: Counter[str] = Counter()

    async def handle(self, sender: str, data: bytes, *, shard: int) -> Verdict:
        """Judge one rollout message of `sender` (a peer id) on the topic of a shard. Never raises and never waits."""
        return self._judge(sender, data, partial(self._admit, sender=sender, shard=shard))

    async def handle_synchronised(self, sender: str, data: bytes) -> Verdict:
        """Judge one rollout message that `sender` was asked for, and so is not charged for. Never raises or waits."""
        verdict = self._judge(sender, data, partial(self._admit, sender=sender), asked=True)
        self.pulled += verdict is Verdict.ACCEPT
        return verdict

    def wants(self, held: InventoryItem) -> int | None:
        """Which bodies of an envelope that a peer holds are not here, as bits by k; None where nothing is missing."""
        here = self._window.received(held.envelope_id)
        if here is None:
            here = self._message_store.bodies(held.envelope_id)  # this node's own
        if here is None:
            return held.bodies
        return held.bodies & ~here or None

    async def handle_evidence(self, sender: str, data: bytes) -> Verdict:
        """Judge one evidence message of `sender`. Never raises and never waits."""
        return self._judge(sender, data, self._accept_evidence)

    def begin_link(self, peer: str) -> None:
        """Take note that a peer has connected: what it signs is charged to its own link, whoever brings it."""
        self._links.add(peer)

    def end_link(self, peer: str) -> None:
        """Take note that a peer has disconnected. Never raises."""
        self._links.discard(peer)
        try:
            self._pending_queue.end_link(peer)
        except StateError as error:
            self._on_fatal(error)

    def _judge(
        self, sender: str, data: bytes, admit: Callable[[bytes, float], Verdict], *, asked: bool = False
    ) -> Verdict:
        now = self._clock.now()
        self._sealed = None
        try:
            self._require_welcome(sender, now, asked=asked)
            return admit(data, now)
        except _Ignore as ignored:
            self._refuse(sender, ignored.reason)
            return ignored.reason.verdict
        except RemoteError as error:
            logger.info("refused a message from %s: %s", sender, error)
            self._refuse(sender, error.layer)
            forged = error.layer is Layer.SIGNATURE
            self._ledger.report(sender, Fact.FORGED_SIGNATURE if forged else Fact.INVALID_MESSAGE)
            return Verdict.REJECT
        except StateError as error:
            self._on_fatal(error)
            return Verdict.IGNORE

    def _refuse(self, sender: str, why: str) -> None:
        self.refused[why] += 1
        if self._on_refused:
            self._on_refused(sender, self._sealed, why)

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop what its window and the age limit refuse anyway."""
        with self._database.transaction():
            self._window.forget_before(epoch - 1)
            self._equivocation_handler.advance()
            self._pending_queue.advance(epoch)
        self._message_store.forget_before(epoch - 1)

    def _require_welcome(self, sender: str, now: float, *, asked: bool) -> None:
        """Step 1 of both tables of the spec: local."""
        if not asked and not self._messages.take(sender, now):
            raise _Ignore(Ignored.SENDER_BUSY)
        if not self._ledger.admits(sender):
            raise _Ignore(Ignored.SENDER_BANNED)

    def _admit(self, data: bytes, now: float, *, sender: str, shard: int | None = None) -> Verdict:
        """Steps 2 to 15 of the spec for rollouts (spec/gossip.md), in its order; no shard for what was asked for."""
        wire = self._wire
        # Steps 2 and 3: MSG-1, MSG-2.
        envelope, bodies = wire.decode_message(data, self._manifest)
        # Step 4: ENV-1 to ENV-6.
        self._sealed = sealed = wire.parse_envelope(envelope, network_id=self._manifest.network_id)
        # Step 5: REP-1.
        earlier = self._require_news(sealed, bodies)
        # Step 6: local.
        self._require_admitted(sealed)
        # Step 7: ENV-7, SIG-1 to SIG-4.
        opened = wire.open_envelope(sealed)
        # Step 8: HDR-1 to HDR-4, EXT-1, EXT-2.
        header = wire.decode_header(opened.payload, self._manifest)
        # Step 9: TOP-3.
        if shard is not None:
            require_shard(self._manifest, shard, opened.issuer, header.epoch)
        # Step 10: TIME-2. Before step 12: an own envelope may be replayed long after this node forgot it.
        if not self._window.is_open(header.epoch, now):
            raise _Ignore(Ignored.OUTSIDE_WINDOW)
        # Step 11: BODY-1.
        rollout = match_bodies(opened, header, bodies)
        # Step 12: DUTY-2.
        if opened.issuer == self._issuer:
            self._recognise(opened, header)
            raise _Ignore(Ignored.DUPLICATE)
        # Step 13: REP-2.
        self._require_first(sealed, header)
        # Step 14: local.
        issuer = peer_id(sealed.issuer)
        link = next((peer for peer in (issuer, sender) if peer in self._links), ENDED_LINK)
        tier = self._ledger.tier(issuer)
        if tier is Tier.STRANGER:
            self._require_place(header, sender, now, free=link == issuer or shard is None)
        # Step 15.
        received = earlier or 0
        fresh = tuple(None if received >> k & 1 else body for k, body in enumerate(bodies))
        with self._database.transaction():
            self._window.accept(rollout.opened, rollout.header, received=received | bits_of(bodies))
            self._pending_queue.put(replace(rollout, bodies=fresh), link=link, tier=tier)
        self._message_store.put(rollout)
        self.accepted += 1
        if shard is not None:
            self.gossiped[shard] += 1
        # DUTY-11: else one envelope with 16 bodies would be forwarded 17 times, each time with a signature to verify.
        return Verdict.ACCEPT if shard is None or earlier is None or all(bodies) else Verdict.KEEP

    def _require_news(self, sealed: Sealed, bodies: tuple[bytes | None, ...]) -> int | None:
        """Before the signature: an envelope accepted earlier is of interest only for bodies that did not come with it.

        Returns those that did, as bits by k; None for a new envelope. Each body is taken once, or a relay could
        have one trained on twice.
        """
        received = self._window.received(sealed.envelope_id)
        if received is not None and not bits_of(bodies) & ~received:
            raise _Ignore(Ignored.DUPLICATE)
        return received

    def _require_admitted(self, sealed: Sealed) -> None:
        """Refuse a banned issuer. The peer that forwards it may not have seen the evidence: DUTY-6."""
        issuer = peer_id(sealed.issuer)
        if not self._ledger.admits(issuer):
            self._equivocation_handler.next_evidence(issuer)
            raise _Ignore(Ignored.ISSUER_BANNED)

    def _recognise(self, opened: Opened, header: Header) -> None:
        try:
            self._counters.recognise(opened.envelope_id, header.epoch)
        except KeyInUseElsewhere as error:
            self._on_fatal(error)

    def _require_first(self, sealed: Sealed, header: Header) -> None:
        """One content for each (issuer, epoch, counter): the node bans an issuer that signs a second one."""
        first = self._window.first(sealed.issuer, header)
        if first is None or self._window.received(sealed.envelope_id) is not None:
            return
        if self._equivocation_handler.hears(sealed.issuer):
            with self._database.decoding():
                accepted = self._wire.parse_envelope(first, network_id=self._manifest.network_id)
            self._ban(encode_evidence(accepted, sealed), publish=True)
        raise _Ignore(Ignored.EQUIVOCATION)

    def _require_place(self, header: Header, sender: str, now: float, *, free: bool) -> None:
        """The quotas of a stranger's rollout: the counters of its issuer, and the rate of the link that brings it.

        The link is not charged for what is `free`. That is what this node asked for: the requests bound it. It is also
        what a connected peer signed: its counters bound it, and a flood that its neighbours forward must not refuse it.
        """
        if header.counter >= self._manifest.max_rounds * self._limits.untrusted_counters:
            raise _Ignore(Ignored.OVER_QUOTA)
        if not free and not self._strangers.take(sender, now):
            raise _Ignore(Ignored.LINK_BUSY)

    def _accept_evidence(self, data: bytes, now: float) -> Verdict:
        """Steps 2 to 11 of the spec for evidence (spec/gossip.md), in its order. Evidence has no window: `now` does not
        matter.
        """
        del now
        # Steps 2 to 5: EVD-1, EVD-2, ENV-1 to ENV-6, EVD-3, EVD-4.
        accusation = decode_evidence(data, self._manifest)
        # Steps 6 and 7: the issuer is banned already, or the budget of this epoch is spent (local).
        if not self._equivocation_handler.hears(accusation.issuer):
            raise _Ignore(Ignored.KNOWN_EVIDENCE)
        # Steps 8 to 11: ENV-7, SIG-1 to SIG-4, HDR-1 to HDR-4, EXT-1, EXT-2, EVD-3.
        self._ban(data, publish=False)
        self.evidence += 1
        return Verdict.ACCEPT

    def _ban(self, evidence: bytes, *, publish: bool) -> None:
        proof = prove_equivocation(decode_evidence(evidence, self._manifest), self._manifest)
        if proof.issuer == self._issuer:
            self._on_fatal(
                KeyInUseElsewhere(
                    "this node's key has signed two envelopes for one round, and there is evidence of it: peers that "
                    "see it ban the key for good; find out who else has it, and start with a new one"
                )
            )
            raise _Ignore(Ignored.EQUIVOCATION)
        self._pending_queue.forget(self._equivocation_handler.ban(proof, publish=publish))
