"""The parts of a node that run in its main process, and their wiring.

The same parts run over libp2p with a learner and a sandbox, or over an in-memory network with any other policy:

    node = build_node(config, swarm, database=..., counters=..., scorer=..., policy=..., on_fatal=...)
    network = hub.join(node.peer_id, node.channels, requests=node.requests(...), admit=node.admits, ...)
    await run_node(node, network.publish, rounds=10)

`run` plays its rounds; `exchange` holds what it does with its peers meanwhile.
"""

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from functools import partial

import trio

from sapo_node.app.config import Config
from sapo_node.app.epochs import Epochs
from sapo_node.app.recipe import way_of_asking
from sapo_node.app.tally import Tally
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.groups.types import VerifiedGroup
from sapo_node.ingest.pending import PendingQueue
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.sync import Peers, Responder
from sapo_node.ingest.validator import Ingest, ReplayWindow
from sapo_node.ingest.wire import WIRE, Wire
from sapo_node.net.interface import Channel, NetworkNotice, PeerConnected, PeerGone, Requests
from sapo_node.observability.history import History
from sapo_node.observability.journal import Journal
from sapo_node.observability.stored import Wait
from sapo_node.rollouts.archive import Archive
from sapo_node.sampling.buffer import Pool
from sapo_node.sampling.filters import Filters
from sapo_node.sampling.sampler import Sampler
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.training.policy import Policy
from sapo_node.training.rollout import Answerer
from sapo_node.training.trainer import Trainer
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_node.trust.limits import LIMITS, Limits
from sapo_node.verification.scheduler import VerificationScheduler
from sapo_node.verification.verifier import OnVerified, Scorer, Unusable, Verifier
from sapo_protocol import LocalError, Manifest, Rollout, evidence_topic, open_message, pull_protocol, rollouts_topics
from sapo_protocol.limits import MAX_EVIDENCE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The limits, the decoders and the classes of a node. An experiment that measures a defence builds a node with
    another class for the part that implements it; every other node has `PARTS`.
    """

    limits: Limits = LIMITS
    wire: Wire = WIRE
    ledger: type[Ledger] = Ledger
    window: type[ReplayWindow] = ReplayWindow
    pending_queue: type[PendingQueue] = PendingQueue
    ingest: type[Ingest] = Ingest
    verifier: type[Verifier] = Verifier
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
    pending_queue: PendingQueue
    message_store: MessageStore
    ingest: Ingest
    scorer: Scorer
    examples: Examples
    """Worked examples that go before each prompt."""
    verifier: Verifier
    pool: Pool
    scheduler: VerificationScheduler
    policy: Policy | None
    """None for a node that does not train."""
    trainer: Trainer | None
    """There is one where there is a policy."""
    contributor: Answerer | None
    """Answers for a node that does not train; without one the node only verifies and relays."""
    history: History
    tally: Tally
    epochs: Epochs
    standing: MutableMapping[str, str]
    """What is wrong now, or awaited, by the part that says so; `observability/condition.py` has the parts."""
    parts: Parts

    @property
    def peer_id(self) -> str:
        """This node's key, as people and libp2p write it."""
        return self.swarm.identity.peer_id

    @property
    def stopping(self) -> trio.Event:
        """Set it to end the node after its round."""
        return self.epochs.stopping

    @property
    def channels(self) -> dict[str, Channel]:
        """What this node takes from the network and sends to it, by topic."""
        manifest = self.swarm.manifest
        rollouts = {
            topic: Channel(partial(self.ingest.handle, shard=shard), manifest.max_message_bytes)
            for shard, topic in enumerate(rollouts_topics(manifest))
        }
        evidence = Channel(self.ingest.handle_evidence, MAX_EVIDENCE_BYTES, everybodys=True)
        return rollouts | {evidence_topic(manifest): evidence}

    def requests(self, peers: Peers) -> Requests:
        """How this node answers the requests of its peers; `peers` gives those that are connected."""
        responder = Responder(
            self.swarm,
            message_store=self.message_store,
            ledger=self.ledger,
            peers=peers,
            on_fetched=self.tally.fetched,
        )
        return Requests(pull_protocol(self.swarm.manifest), responder.answer)

    def admits(self, peer: str) -> bool:
        """Whether a peer may connect and be heard."""
        return self.ledger.admits(peer)

    def notice(self, notice: NetworkNotice) -> None:
        """Take note of a peer that has connected or is gone."""
        match notice:
            case PeerConnected(peer, block):
                self.ingest.begin_link(peer)
                self.pending_queue.begin_link(peer, block)
            case PeerGone(peer):
                self.ingest.end_link(peer)

    def waits(self) -> list[Wait]:
        """What the node waits for now."""
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
        """Take over what the operator decided meanwhile, and drop what waits of peers that are now banned."""
        _forget(self.ledger.refresh(), self.pending_queue, self.pool)


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
    journal: Journal | None = None,
    archive: Archive | None = None,
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
    pending_queue = parts.pending_queue(database, swarm.manifest, rng=swarm.rng, limits=limits, wire=wire)
    message_store = _own_messages(database, counters, swarm.manifest)
    ingest = parts.ingest(
        swarm,
        database=database,
        counters=counters,
        ledger=ledger,
        equivocation_handler=equivocation_handler,
        window=parts.window(database, swarm.manifest),
        pending_queue=pending_queue,
        message_store=message_store,
        on_fatal=on_fatal,
        on_refused=journal.refused if journal else None,
        limits=limits,
        wire=wire,
    )
    verifier = parts.verifier(swarm, scorer, ledger, on_verified=_records(journal, archive), wire=wire)
    history = History(database)
    tally = Tally(database, history=history, ingest=ingest, verifier=verifier, journal=journal)
    pool = _pool(database, ledger, pending_queue, tally, limits)
    return Node(
        config=config,
        swarm=swarm,
        database=database,
        counters=counters,
        ledger=ledger,
        equivocation_handler=equivocation_handler,
        subscriptions=ShardSubscriptions(swarm.manifest, ledger, swarm.rng),
        pending_queue=pending_queue,
        message_store=message_store,
        ingest=ingest,
        scorer=scorer,
        examples=examples,
        verifier=verifier,
        pool=pool,
        scheduler=VerificationScheduler(pending_queue=pending_queue, verifier=verifier, pool=pool, ledger=ledger),
        policy=policy,
        trainer=_trainer(config, swarm, database, pool, policy, tally=tally, examples=examples) if policy else None,
        contributor=contributor,
        history=history,
        tally=tally,
        standing={} if standing is None else standing,
        parts=parts,
        epochs=Epochs(swarm, counters=counters, ledger=ledger, ingest=ingest, pool=pool),
    )


def _records(journal: Journal | None, archive: Archive | None) -> OnVerified:
    """What is called with each verified group: everything that keeps a record of it."""
    kept = [each.verified_or_unusable for each in (journal, archive) if each]

    def record(rollout: Rollout, k: int, finding: VerifiedGroup | Unusable) -> None:
        for keep in kept:
            keep(rollout, k, finding)

    return record


def _pool(database: Database, ledger: Ledger, pending_queue: PendingQueue, tally: Tally, limits: Limits) -> Pool:
    """The pool. What waits of peers that the operator has banned since the last start goes, in the queue as well."""
    pool = Pool(database, tier=ledger.tier, limits=limits, on_dropped=tally.dropped)
    _forget(ledger.banned_by_operator(), pending_queue, pool)
    return pool


def _forget(banned: Iterable[str], pending_queue: PendingQueue, pool: Pool) -> None:
    """Drop what waits of peers that the operator has banned."""
    for peer in banned:
        pending_queue.forget(peer)
        pool.forget(peer)


def _own_messages(database: Database, counters: Counters, manifest: Manifest) -> MessageStore:
    """A store that holds this key's envelopes of this epoch and the last."""
    store = MessageStore(manifest)
    with database.decoding():
        for message in counters.recent():
            store.put(open_message(message, manifest))
    return store


def _trainer(
    config: Config,
    swarm: SwarmContext,
    database: Database,
    pool: Pool,
    policy: Policy,
    *,
    tally: Tally,
    examples: Examples,
) -> Trainer:
    return Trainer(
        database,
        pool,
        policy,
        objective=config.external_objective,
        checkpoint_every=config.checkpoint_every,
        now=swarm.clock.now,
        on_taken_back=tally.taken_back,
        on_replayed=tally.replayed,
        examples=examples,
        asked=way_of_asking(config),
    )
