"""The parts of a node that run in its main process, and their wiring.

The same parts run over libp2p with a learner and a sandbox, or over an in-memory network with any other policy:

    node = build_node(config, swarm, database=..., counters=..., scorer=..., policy=..., on_fatal=...)
    network = hub.join(node.peer_id, node.channels, requests=node.requests(...), admit=node.admits, ...)
    await run_node(node, network.publish, rounds=10)

`Epochs` enters epochs and reserves counters. `Tally` writes the counts and the history of rounds. `run` plays the
rounds; `exchange` sends to peers and asks them meanwhile.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import partial

import trio

from sapo_node.app.config import Config
from sapo_node.app.recipe import way_of_asking
from sapo_node.groups.book import Book
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.groups.record import ContributionReport
from sapo_node.groups.wire import WIRE, Wire
from sapo_node.ingest.fetch import Fetcher
from sapo_node.ingest.publication import PublishByNeed
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.sync import Peers, Responder
from sapo_node.ingest.validator import Ingest, ReplayWindow
from sapo_node.net.interface import Channel, NetworkNotice, PeerConnected, PeerGone, Requests
from sapo_node.observability.history import ACCEPTED, EVIDENCE, PULLED, VERIFIED, History
from sapo_node.observability.stored import Wait
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.sampler import Sampler
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters, Slot
from sapo_node.storage.database import Database
from sapo_node.training.rollout import Answerer, Policy
from sapo_node.training.round import RoundReport
from sapo_node.training.trainer import Trainer
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.limits import LIMITS, Limits
from sapo_node.verification.verifier import Scorer, VerificationScheduler, Verifier
from sapo_protocol import (
    LocalError,
    Manifest,
    epoch_start,
    evidence_topic,
    open_message,
    pull_protocol,
    rollouts_topics,
)
from sapo_protocol.limits import MAX_EVIDENCE_BYTES

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
"""Seconds between two looks at the clock before the genesis."""


class Epochs:
    """Enters each epoch once, and reserves counters of the current epoch."""

    def __init__(
        self,
        swarm: SwarmContext,
        *,
        counters: Counters,
        ledger: Ledger,
        ingest: Ingest,
    ) -> None:
        self._manifest = swarm.manifest
        self._clock = swarm.clock
        self._counters = counters
        self._ledger = ledger
        self._ingest = ingest
        self._entered: int | None = None
        self.stopping = trio.Event()
        """Set this to stop the node: it finishes its round and starts no other."""
        self.waits_until: float | None = None
        """Unix time of the next epoch while the node waits for it."""

    def enter_current(self) -> float:
        """Enter the current epoch, unless the clock jumped there and is not believed yet. Return the Unix time that
        was looked at.
        """
        now = self._clock.now()
        self._counters.look(now, self._clock.steady())
        self.enter(self._counters.believed_epoch(now))
        return now

    def enter(self, epoch: int) -> None:
        """Do the work of a new epoch: end bans, promote untrusted peers, drop old messages and groups."""
        if epoch == self._entered:
            return
        self._entered = epoch
        self._ledger.at(epoch)
        self._ingest.advance(epoch)

    async def reserve(self) -> Slot | None:
        """Return the counter of the next round. If this epoch has none left, wait for its end and return None. Before
        the genesis, wait for the genesis and return None.
        """
        now = self.enter_current()  # the clock may be set before a second look
        slot = self._counters.reserve(now)
        if self._counters.epoch(now) < 0:
            await self._wait_for_genesis(now)
        elif slot is None:
            logger.warning("all %d rounds of this epoch are played; waiting for the next", self._manifest.max_rounds)
            self.waits_until = epoch_start(self._manifest, self._counters.epoch(now) + 1)
            await self.pause(max(0.0, self.waits_until - now))
            self.waits_until = None
        return slot

    async def _wait_for_genesis(self, now: float) -> None:
        """Wait until the swarm begins. The clock may be set meanwhile: a machine may start with one that is wrong."""
        while (left := self._manifest.genesis - now) > 0 and not self.stopping.is_set():
            await self.pause(min(left, _LOOK_SECONDS))
            now = self.enter_current()

    async def pause(self, seconds: float) -> None:
        """Wait for this many seconds, or until `stopping` is set."""
        with trio.move_on_after(seconds):
            await self.stopping.wait()


class Tally:
    """Records rounds, and adds what the parts of the node counted to the counts since the state was made."""

    def __init__(self, database: Database, *, history: History, ingest: Ingest, verifier: Verifier, book: Book) -> None:
        self._database = database
        self._history = history
        self._ingest = ingest
        self._verifier = verifier
        self._book = book
        self._counted: dict[str, int] = {}
        self._fetched: Counter[str] = Counter()
        """Rollouts of this node that were given to each peer since the last count."""

    def fetched(self, peer: str, rollouts: int) -> None:
        """Count rollouts of this node that a peer requested."""
        self._fetched[peer] += rollouts

    def played(self, report: RoundReport) -> None:
        """Record a round of a node that trains."""
        with self._database.transaction():
            self._history.record(report)
            self.count()

    def contributed(self, report: ContributionReport) -> None:
        """Record a shared round of a node that does not train."""
        with self._database.transaction():
            self._history.contribute(report)
            self.count()

    def count(self) -> None:
        """Add what happened since the last call to the durable counts, and have the book write what it noted."""
        self._book.flush()
        taken = {
            ACCEPTED: self._ingest.accepted,
            PULLED: self._ingest.pulled,
            VERIFIED: self._verifier.verified,
            EVIDENCE: self._ingest.evidence,
        }
        now = {**taken, **self._ingest.refused, **self._verifier.unusable, **self._book.left_out}
        if now != self._counted:
            self._history.count({name: count - self._counted.get(name, 0) for name, count in now.items()})
            self._counted = now
        if self._fetched:
            self._history.fetched(self._fetched, at=time.time())
            self._fetched.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The limits, the decoders and the classes of a node. An experiment that measures a defence builds a node with
    another class for the part that implements it; every other node has `PARTS`.
    """

    limits: Limits = LIMITS
    wire: Wire = WIRE
    ledger: type[Ledger] = Ledger
    window: type[ReplayWindow] = ReplayWindow
    book: type[Book] = Book
    ingest: type[Ingest] = Ingest
    fetcher: type[Fetcher] = Fetcher
    responder: type[Responder] = Responder
    verifier: type[Verifier] = Verifier
    scheduler: type[VerificationScheduler] = VerificationScheduler
    filters: type[Filters] = Filters
    sampler: type[Sampler] = Sampler


PARTS = Parts()
"""The parts that every node has."""


@dataclass(slots=True, kw_only=True)
class Node:
    """The parts of one node, by what they do; `build_node` makes them fit."""

    config: Config
    swarm: SwarmContext
    database: Database
    counters: Counters
    ledger: Ledger
    equivocation_handler: EquivocationHandler
    subscriptions: ShardSubscriptions
    publication: PublishByNeed
    book: Book
    message_store: MessageStore
    ingest: Ingest
    fetcher: Fetcher
    scorer: Scorer
    examples: Examples
    """Worked examples that go before each prompt."""
    verifier: Verifier
    scheduler: VerificationScheduler
    policy: Policy | None
    """None for a node that does not train."""
    trainer: Trainer | None
    """None for a node without a policy."""
    contributor: Answerer | None
    """Answers for a node that does not train; without one the node only verifies and relays."""
    history: History
    tally: Tally
    epochs: Epochs
    standing: MutableMapping[str, str]
    """The present problems and the things awaited, by the part that reports each; see `observability/condition.py`."""
    parts: Parts

    @property
    def peer_id(self) -> str:
        """The peer id of this node."""
        return self.swarm.identity.peer_id

    @property
    def stopping(self) -> trio.Event:
        """Set it to end the node after its round."""
        return self.epochs.stopping

    @property
    def channels(self) -> dict[str, Channel]:
        """The handler and the size limit of each topic."""
        manifest = self.swarm.manifest
        rollouts = {
            topic: Channel(partial(self.ingest.handle, shard=shard), manifest.max_message_bytes)
            for shard, topic in enumerate(rollouts_topics(manifest))
        }
        evidence = Channel(self.ingest.handle_evidence, MAX_EVIDENCE_BYTES, everybodys=True)
        return rollouts | {evidence_topic(manifest): evidence}

    def requests(self, peers: Peers) -> Requests:
        """Return the handler of peers' requests; `peers` returns the connected peers."""
        responder = self.parts.responder(
            self.swarm,
            message_store=self.message_store,
            ledger=self.ledger,
            peers=peers,
            fetcher=self.fetcher,
            on_fetched=self._fetched,
        )
        return Requests(pull_protocol(self.swarm.manifest), responder.answer)

    def _fetched(self, peer: str, rollouts: int, groups: int) -> None:
        self.tally.fetched(peer, rollouts)
        self.publication.requested(groups)

    def admits(self, peer: str) -> bool:
        """Return whether a peer may connect and send messages."""
        return self.ledger.admits(peer)

    def notice(self, notice: NetworkNotice) -> None:
        """Note a peer that has connected or disconnected."""
        match notice:
            case PeerConnected(peer, block):
                self.ingest.begin_link(peer)
                self.book.begin_link(peer, block)
            case PeerGone(peer):
                self.ingest.end_link(peer)

    def waits(self) -> list[Wait]:
        """Return the events that the node waits for now."""
        now = self.swarm.clock.now()
        listens = self.counters.listening_seconds(now, self.swarm.clock.steady())
        waits: list[Wait] = []
        if listens:
            why = (
                "another node may use this key: its state is new, copied or restored"
                if self.counters.believes_clock
                else "the clock jumped, or the machine was off"
            )
            waits.append(Wait(what="the end of listening, before it publishes", until=round(now + listens), why=why))
        if self.counters.epoch(now) < 0:
            waits.append(Wait(what="the beginning of the swarm", until=self.swarm.manifest.genesis))
        if until := self.epochs.waits_until:
            waits.append(Wait(what="the next epoch: all rounds of this one are played", until=round(until)))
        return waits

    def refresh_decisions(self) -> None:
        """Read the new decisions of the operator, and drop the waiting rollouts of peers that are now banned."""
        for peer in self.ledger.refresh():
            self.book.forget(peer)


def build_node(
    config: Config,
    swarm: SwarmContext,
    *,
    database: Database,
    counters: Counters,
    scorer: Scorer,
    policy: Policy | None,
    contributor: Answerer | None = None,
    examples: Examples = NO_EXAMPLES,
    standing: MutableMapping[str, str] | None = None,
    on_fatal: Callable[[LocalError], None],
    parts: Parts = PARTS,
) -> Node:
    """Make the parts of a node. `counters` are in the same database. An error that must stop it goes to `on_fatal`."""
    limits, wire = parts.limits, parts.wire
    ledger = parts.ledger(
        database,
        epoch=counters.believed_epoch(swarm.clock.now()),
        trusted=config.trusted,
        banned=config.banned,
        now=swarm.clock.now,
        limits=limits,
    )
    equivocation_handler = EquivocationHandler(ledger, limits=limits)
    book = parts.book(
        database,
        swarm.manifest,
        rng=swarm.rng,
        tier=ledger.tier,
        signed_bytes=config.archive * 2**20,
        now=swarm.clock.now,
        limits=limits,
        wire=wire,
    )
    for peer in ledger.banned_by_operator():  # since the last start
        book.forget(peer)
    message_store = _own_messages(database, counters, swarm.manifest)
    window = parts.window(database, swarm.manifest)
    ingest = parts.ingest(
        swarm,
        database=database,
        counters=counters,
        ledger=ledger,
        equivocation_handler=equivocation_handler,
        window=window,
        book=book,
        message_store=message_store,
        on_fatal=on_fatal,
        limits=limits,
        wire=wire,
    )
    fetcher = parts.fetcher(swarm, message_store=message_store, ledger=ledger, window=window)
    verifier = parts.verifier(swarm, scorer, ledger, wire=wire)
    history = History(database)
    tally = Tally(database, history=history, ingest=ingest, verifier=verifier, book=book)
    return Node(
        config=config,
        swarm=swarm,
        database=database,
        counters=counters,
        ledger=ledger,
        equivocation_handler=equivocation_handler,
        subscriptions=ShardSubscriptions(swarm.manifest, ledger, swarm.rng),
        publication=PublishByNeed(swarm.manifest, swarm.identity.public_key),
        book=book,
        message_store=message_store,
        ingest=ingest,
        fetcher=fetcher,
        scorer=scorer,
        examples=examples,
        verifier=verifier,
        scheduler=parts.scheduler(book=book, verifier=verifier, ledger=ledger, fetcher=fetcher),
        policy=policy,
        trainer=_trainer(config, swarm, database, book, policy, examples=examples) if policy else None,
        contributor=contributor,
        history=history,
        tally=tally,
        standing={} if standing is None else standing,
        parts=parts,
        epochs=Epochs(swarm, counters=counters, ledger=ledger, ingest=ingest),
    )


def _own_messages(database: Database, counters: Counters, manifest: Manifest) -> MessageStore:
    """Return a store with this key's envelopes of this epoch and the last."""
    store = MessageStore(manifest)
    with database.decoding():
        for message in counters.recent():
            store.put(open_message(message, manifest))
    return store


def _trainer(
    config: Config, swarm: SwarmContext, database: Database, book: Book, policy: Policy, *, examples: Examples
) -> Trainer:
    return Trainer(
        database,
        book,
        policy,
        objective=config.external_objective,
        checkpoint_every=config.checkpoint_every,
        now=swarm.clock.now,
        examples=examples,
        asked=way_of_asking(config),
    )
