"""The parts of a node that run in its main process, and their wiring.

The same parts run over libp2p with a learner and a sandbox, or over an in-memory network with any other policy:

    node = build_node(config, swarm, database=..., counters=..., scorer=..., policy=..., on_fatal=...)
    network = hub.join(node.peer_id, node.channels, requests=node.requests(...), admit=node.admits, ...)
    await run_node(node, network.publish, rounds=10)

`run` plays its rounds; `exchange` holds what it does with its peers meanwhile.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import partial

import trio

from sapo_node.app.config import Config
from sapo_node.app.epochs import Epochs
from sapo_node.app.recipe import way_of_asking
from sapo_node.app.tally import Tally
from sapo_node.groups.book import Book
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.groups.wire import WIRE, Wire
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.sync import Peers, Responder
from sapo_node.ingest.validator import Ingest, ReplayWindow
from sapo_node.net.interface import Channel, NetworkNotice, PeerConnected, PeerGone, Requests
from sapo_node.observability.history import History
from sapo_node.observability.stored import Wait
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
from sapo_node.verification.verifier import Scorer, VerificationScheduler, Verifier
from sapo_protocol import LocalError, Manifest, evidence_topic, open_message, pull_protocol, rollouts_topics
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
    book: type[Book] = Book
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
    book: Book
    message_store: MessageStore
    ingest: Ingest
    scorer: Scorer
    examples: Examples
    """Worked examples that go before each prompt."""
    verifier: Verifier
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
                self.book.begin_link(peer, block)
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
    ingest = parts.ingest(
        swarm,
        database=database,
        counters=counters,
        ledger=ledger,
        equivocation_handler=equivocation_handler,
        window=parts.window(database, swarm.manifest),
        book=book,
        message_store=message_store,
        on_fatal=on_fatal,
        limits=limits,
        wire=wire,
    )
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
        book=book,
        message_store=message_store,
        ingest=ingest,
        scorer=scorer,
        examples=examples,
        verifier=verifier,
        scheduler=VerificationScheduler(book=book, verifier=verifier, ledger=ledger),
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
    """A store that holds this key's envelopes of this epoch and the last."""
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
