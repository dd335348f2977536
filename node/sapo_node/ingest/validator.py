"""Turns each message of the network into a signed rollout in the book, or counts why it refuses the message.

Checks go from cheap to costly, in the order of the spec (spec/gossip.md).

- REJECT: the bytes alone prove the message wrong. The ledger charges the peer that sent it, never the issuer it names.
- IGNORE: the message depends on this node's clock, ledger or load. No peer is charged.
- BUSY: as IGNORE, and the same message from another peer is welcome.

The validator scores nothing. The verifier does that later, when the trainer asks for groups.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from sapo_node.gossip.verdict import Verdict
from sapo_node.groups.book import Book
from sapo_node.groups.lottery import ENDED_LINK
from sapo_node.groups.wire import WIRE, Wire
from sapo_node.ingest.store import MessageStore, bits_of
from sapo_node.processes.link_budget import LinkBudget
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
    Manifest,
    Opened,
    RemoteError,
    Sealed,
    decode_evidence,
    encode_evidence,
    in_window,
    match_bodies,
    peer_id,
    prove_equivocation,
    require_shard,
)

logger = logging.getLogger(__name__)


FEW_ISSUERS = 8
"""Other issuers of the open epochs up to which a swarm is small: bodies travel with their envelopes (DUTY-12)."""
FORWARDED_ISSUERS = 16
"""Issuers above which the node does not forward a message whose bodies make it longer than `inline_bytes`. Every
publisher knows of more than FEW_ISSUERS then, except one that has just joined (DUTY-11)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (
    issuer BLOB, epoch INTEGER, counter INTEGER, envelope_id BLOB NOT NULL, envelope BLOB NOT NULL,
    received INTEGER NOT NULL,
    PRIMARY KEY (issuer, epoch, counter)
) STRICT;
CREATE INDEX IF NOT EXISTS seen_id ON seen (envelope_id);
CREATE TABLE IF NOT EXISTS forgotten (before INTEGER NOT NULL) STRICT;
"""


class Ignored(StrEnum):
    """The reasons of IGNORE and BUSY."""

    SENDER_BUSY = "sender over its rate"
    LINK_BUSY = "link over its rate for strangers"
    SENDER_BANNED = "sender banned"
    ISSUER_BANNED = "issuer banned"
    DUPLICATE = "duplicate"
    OUTSIDE_WINDOW = "outside the epoch window"
    OVER_QUOTA = "issuer over its quota"
    EQUIVOCATION = "equivocation"
    KNOWN_EVIDENCE = "evidence known or over its budget"

    @property
    def verdict(self) -> Verdict:
        """BUSY where only the peer that sent the message is at fault: the same message from another peer is welcome."""
        return Verdict.BUSY if self in (Ignored.SENDER_BUSY, Ignored.LINK_BUSY) else Verdict.IGNORE


class ReplayWindow:
    """The envelopes that were accepted in the open epochs: (issuer, epoch, counter) is accepted once, ever.

    The node refuses older envelopes by their epoch, so it remembers only the open epochs. A clock may go back: the node
    refuses an epoch that it has forgotten. It keeps the first envelope of a counter: a second one with other content
    makes the pair a proof of equivocation.
    """

    def __init__(self, database: Database, manifest: Manifest) -> None:
        self._database = database
        self._manifest = manifest
        row = database.row("SELECT before FROM forgotten")
        self._forgotten: int | None = row[0] if row else None

    def is_open(self, epoch: int, now: float) -> bool:
        """Return whether the validator may accept an epoch: TIME-2 allows it, and this node remembers its envelopes."""
        return in_window(self._manifest, epoch, now) and self.remembers(epoch)

    def received(self, envelope_id: bytes) -> int | None:
        """The bodies that came with an accepted envelope, as bits by k. None if no such envelope was accepted."""
        row = self._database.row("SELECT received FROM seen WHERE envelope_id = ?", envelope_id)
        return row[0] if row else None

    def first(self, issuer: bytes, header: Header) -> bytes | None:
        """The envelope that was accepted under the same counter, if there is one."""
        row = self._database.row(
            "SELECT envelope FROM seen WHERE issuer = ? AND epoch = ? AND counter = ?",
            issuer,
            header.epoch,
            header.counter,
        )
        return row[0] if row else None

    def accept(self, opened: Opened, header: Header, *, received: int) -> None:
        """Remember an envelope and its received bodies, as bits by k."""
        self._database.execute(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)",
            opened.issuer,
            header.epoch,
            header.counter,
            opened.envelope_id,
            opened.envelope,
            received,
        )

    def add(self, envelope_id: bytes, bodies: int) -> int:
        """Remember that bodies of an accepted envelope came, as bits by k. Returns those that had come before."""
        received = self.received(envelope_id) or 0
        self._database.execute("UPDATE seen SET received = ? WHERE envelope_id = ?", received | bodies, envelope_id)
        return received & bodies

    def has_more_issuers_than(self, count: int) -> bool:
        """Return whether envelopes of more than `count` issuers were accepted in the open epochs."""
        distinct = "SELECT count(*) FROM (SELECT DISTINCT issuer FROM seen LIMIT ?)"
        return bool(self._database.rows(distinct, count + 1)[0][0] > count)

    def forget_before(self, epoch: int) -> None:
        """Forget the epochs before this one, for good."""
        if self.remembers(epoch):
            self._database.execute("DELETE FROM seen WHERE epoch < ?", epoch)
            self._database.execute("DELETE FROM forgotten")
            self._database.execute("INSERT INTO forgotten VALUES (?)", epoch)
            self._forgotten = epoch

    def return_to(self, epoch: int) -> None:
        """Open the epochs from `epoch` + 2 again, after a wrong clock made this node forget them. It may have accepted
        and forgotten envelopes of `epoch` + 1.
        """
        self._database.execute("UPDATE forgotten SET before = min(before, ?)", epoch + 2)
        self._forgotten = min(self._forgotten, epoch + 2) if self._forgotten is not None else None

    def remembers(self, epoch: int) -> bool:
        """Return whether the accepted envelopes of an epoch are still known."""
        return self._forgotten is None or epoch >= self._forgotten


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
        book: Book,
        message_store: MessageStore,
        on_fatal: Callable[[LocalError], None],
        limits: Limits = LIMITS,
        wire: Wire = WIRE,
    ) -> None:
        """`on_fatal` is called with what must stop the node."""
        self._database = database
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._issuer = swarm.identity.public_key
        self._counters = counters
        self._ledger = ledger
        self._equivocation_handler = equivocation_handler
        self._book = book
        self._message_store = message_store
        self._on_fatal = on_fatal
        self._limits = limits
        self._wire = wire
        self._window = window
        self._messages = LinkBudget(rate=limits.messages_per_second, burst=limits.message_burst)
        self._strangers = LinkBudget(rate=limits.strangers_per_second, burst=limits.strangers_burst)
        """Rollouts of strangers, by the peer that sends them."""
        self._links: set[str] = set()
        """The peers that are connected."""
        self.accepted = 0
        self.gossiped: Counter[int] = Counter()
        """Accepted rollouts that gossip brought, by shard."""
        self.pulled = 0
        """Accepted rollouts that this node asked for."""
        self.evidence = 0
        self.refused: Counter[str] = Counter()

    async def handle(self, sender: str, data: bytes, *, shard: int) -> Verdict:
        """Judge one rollout message of `sender` (a peer id) on the topic of a shard. Never raises and never waits."""
        return self._judge(sender, data, shard=shard)

    async def handle_synchronised(self, sender: str, data: bytes) -> Verdict:
        """Judge one rollout message that this node asked `sender` for, at no charge. Never raises and never waits."""
        verdict = self._judge(sender, data, shard=None)
        self.pulled += verdict is Verdict.ACCEPT
        return verdict

    def is_small_swarm(self) -> bool:
        """Return whether bodies travel with their envelopes: this node knows of at most FEW_ISSUERS other issuers."""
        return not self._window.has_more_issuers_than(FEW_ISSUERS)

    def wants(self, held: InventoryItem, *, bodies: bool) -> int | None:
        """The bodies of a peer's envelope to request now, as bits by k: those that this node lacks, or without `bodies`
        none. None if the envelope is here and no body is to be requested.
        """
        here = self._window.received(held.envelope_id)
        if here is None:
            here = self._message_store.bodies(held.envelope_id)  # this node's own
        wanted = held.bodies if bodies else 0
        return wanted if here is None else wanted & ~here or None

    async def handle_evidence(self, sender: str, data: bytes) -> Verdict:
        """Judge one evidence message of `sender`. Never raises and never waits."""
        try:
            self._require_welcome(sender, self._clock.now(), asked=False)
            return self._accept_evidence(data)
        except (_Ignore, RemoteError, StateError) as error:
            return self._refuse(error, sender, None)

    def begin_link(self, peer: str) -> None:
        """A peer has connected: its rollouts are charged to its own link, whichever peer sends them."""
        self._links.add(peer)

    def end_link(self, peer: str) -> None:
        """A peer has disconnected. Never raises."""
        self._links.discard(peer)
        try:
            self._book.end_link(peer)
        except StateError as error:
            self._on_fatal(error)

    def _judge(self, sender: str, data: bytes, *, shard: int | None) -> Verdict:
        """Judge a rollout message; no shard for one that `sender` was asked for."""
        sealed: Sealed | None = None
        try:
            now = self._clock.now()
            # Step 1: local.
            self._require_welcome(sender, now, asked=shard is None)
            # Steps 2 and 3: MSG-1, MSG-2.
            envelope, bodies = self._wire.decode_message(data, self._manifest)
            # Step 4: ENV-1 to ENV-6.
            sealed = self._wire.parse_envelope(envelope, network_id=self._manifest.network_id)
            return self._admit(sealed, bodies, size=len(data), sender=sender, shard=shard, now=now)
        except (_Ignore, RemoteError, StateError) as error:
            return self._refuse(error, sender, sealed)

    def _refuse(self, error: _Ignore | RemoteError | StateError, sender: str, sealed: Sealed | None) -> Verdict:
        """Count a message that is not accepted, and charge the sender of one that its bytes alone prove wrong."""
        if isinstance(error, StateError):
            self._on_fatal(error)
            return Verdict.IGNORE
        why = error.reason if isinstance(error, _Ignore) else error.layer
        self.refused[why] += 1
        self._book.refused(sender, sealed, why)
        if isinstance(error, _Ignore):
            return error.reason.verdict
        logger.info("refused a message from %s: %s", sender, error)
        forged = error.layer is Layer.SIGNATURE
        self._ledger.report(sender, Fact.FORGED_SIGNATURE if forged else Fact.INVALID_MESSAGE)
        return Verdict.REJECT

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop envelopes and rollouts that are too old."""
        with self._database.transaction():
            self._window.forget_before(epoch - 1)
            self._equivocation_handler.advance()
            self._book.advance(epoch)
        self._message_store.forget_before(epoch - 1)

    def _require_welcome(self, sender: str, now: float, *, asked: bool) -> None:
        """Step 1 of both tables of the spec: local."""
        if not asked and not self._messages.take(sender, now):
            raise _Ignore(Ignored.SENDER_BUSY)
        if not self._ledger.admits(sender):
            raise _Ignore(Ignored.SENDER_BANNED)

    def _admit(
        self, sealed: Sealed, bodies: tuple[bytes | None, ...], *, size: int, sender: str, shard: int | None, now: float
    ) -> Verdict:
        """Steps 5 to 15 of the spec for rollouts (spec/gossip.md), in its order."""
        # Step 5: REP-1.
        earlier = self._require_news(sealed, bodies)
        # Step 6: local.
        self._require_admitted(sealed)
        # Step 7: ENV-7, SIG-1 to SIG-4.
        opened = self._wire.open_envelope(sealed)
        # Step 8: HDR-1 to HDR-4, EXT-1, EXT-2.
        header = self._wire.decode_header(opened.payload, self._manifest)
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
            groups = None if earlier is None else bits_of(fresh)
            self._book.arrive(replace(rollout, bodies=fresh), link=link, tier=tier, groups=groups)
        self._message_store.put(rollout, bringer=sender)
        self.accepted += 1
        if shard is not None:
            self.gossiped[shard] += 1
        is_new = earlier is None
        return Verdict.ACCEPT if shard is None or self._forwards(bodies, size, is_new=is_new) else Verdict.KEEP

    def _forwards(self, bodies: tuple[bytes | None, ...], size: int, *, is_new: bool) -> bool:
        """Return whether to forward an accepted message of `size` bytes: DUTY-11."""
        if not is_new and not all(bodies):
            # Else one envelope with 16 bodies would be forwarded 17 times, each time with a signature to verify.
            return False
        # Each peer of a large swarm would pay for bodies of which it verifies few.
        is_short = not any(bodies) or size <= self._manifest.inline_bytes
        return is_short or not self._window.has_more_issuers_than(FORWARDED_ISSUERS)

    def _require_news(self, sealed: Sealed, bodies: tuple[bytes | None, ...]) -> int | None:
        """Refuse an envelope that was accepted earlier, unless bodies come with it that this node lacks.

        Returns the bodies that came earlier, as bits by k, or None for a new envelope. A body is taken once: otherwise
        the sender could have it trained on twice.
        """
        received = self._window.received(sealed.envelope_id)
        if received is not None and not bits_of(bodies) & ~received:
            raise _Ignore(Ignored.DUPLICATE)
        return received

    def _require_admitted(self, sealed: Sealed) -> None:
        """Refuse a banned issuer, and publish the evidence for the peer that still forwards its messages: DUTY-6."""
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
        """Refuse a stranger's rollout beyond the counters of its issuer or the rate of its sender.

        Two kinds of rollouts are `free` and cost the sender no rate. This node asked for the first: its requests bound
        them. Connected peers signed the second: their counters bound them, and a neighbour that forwards a flood must
        not use up their rate.
        """
        if header.counter >= self._manifest.max_rounds * self._limits.untrusted_counters:
            raise _Ignore(Ignored.OVER_QUOTA)
        if not free and not self._strangers.take(sender, now):
            raise _Ignore(Ignored.LINK_BUSY)

    def _accept_evidence(self, data: bytes) -> Verdict:
        """Steps 2 to 11 of the spec for evidence (spec/gossip.md), in its order."""
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
        self._book.forget(self._equivocation_handler.ban(proof, publish=publish))
