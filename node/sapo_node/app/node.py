"""A node without its sockets and processes: what runs in the main process, put together.

The same object runs over libp2p with a learner and a jail, or over an in-memory network with any other policy.
"""

import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from sapo_node.app.config import Config
from sapo_node.contributors.rounds import ContributionRounds
from sapo_node.groups.types import ContributionReport
from sapo_node.ingest.pending import PendingQueue
from sapo_node.ingest.shards import ShardSubscriptions
from sapo_node.ingest.store import MessageStore
from sapo_node.ingest.sync import Peers, Responder, Synchroniser
from sapo_node.ingest.validator import Ingest
from sapo_node.net.interface import Acquaintances, Channel, Network, NotRunningError, Requests
from sapo_node.observability.history import ACCEPTED, EVIDENCE, PULLED, VERIFIED, History
from sapo_node.observability.journal import UNWRITTEN, Journal, Unwritten
from sapo_node.processes.clock import Clock
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.buffer import Pool
from sapo_node.sampling.filters import Gates
from sapo_node.sampling.mix import ratio_of
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.sampler import NotDrawn, Sampler
from sapo_node.storage.counters import Counters, Slot
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.training.batch_log import Policy, Trainer
from sapo_node.training.evaluation import measure
from sapo_node.training.rollout import Answerer, Contribution, RoundFailed
from sapo_node.training.round import Choices, Phase, RoundReport, Rounds
from sapo_node.trust.defences import DEFENDED, Defences
from sapo_node.trust.equivocation import EquivocationHandler
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.scheduler import VerificationScheduler
from sapo_node.verification.verifier import Scorer, Verifier
from sapo_protocol import (
    LocalError,
    Manifest,
    Rollout,
    epoch_start,
    evidence_topic,
    open_message,
    pull_protocol,
    rollouts_topics,
    topic_of,
)
from sapo_protocol.limits import MAX_EVIDENCE_BYTES

logger = logging.getLogger(__name__)

Publish = Callable[[str, bytes], Awaitable[None]]
"""`publish(topic, message)`."""

MAX_FAILED_ROUNDS = 5
"""Rounds that may fail in a row before the node gives up with the last error."""
EVAL_PROMPTS = 16
"""Of each task, always the same: enough for a curve of many looks; one alone has a wide interval."""
_PAUSE = 1.0
"""Seconds between attempts, and between looks at the inbox of a node that does not train and at evidence to send."""


class Node:
    """Takes in rollouts at any time, and plays rounds one after another."""

    def __init__(
        self,
        *,
        config: Config,
        manifest: Manifest,
        identity: Identity,
        counters: Counters,
        database: Database,
        clock: Clock,
        scorer: Scorer,
        policy: Policy | None,
        rng: random.Random,
        on_fatal: Callable[[LocalError], None],
        contributor: Answerer | None = None,
        journal: Journal | Unwritten = UNWRITTEN,
        defences: Defences = DEFENDED,
    ) -> None:
        """`counters` are this key's, in the same database; `on_fatal` hears what must stop the node. `policy` is None
        for one that does not train: it shares the answers of its `contributor`, or only verifies and relays without
        one. `journal` hears what becomes of messages and groups.
        """
        self._manifest = manifest
        self._rollouts, self._evidence = rollouts_topics(manifest), evidence_topic(manifest)
        self._config = config
        self._clock = clock
        self._database = database
        self._journal = journal
        self._defences = defences
        self.identity = identity
        self.counters = counters
        epoch = self.counters.epoch(clock.now())
        self.ledger = Ledger(
            database,
            epoch=epoch,
            trusted=config.trusted,
            banned=config.banned,
            rng=rng,
            now=clock.now,
            defences=defences,
        )
        self._equivocation_handler = EquivocationHandler(self.ledger, defences=defences)
        self.subscriptions = ShardSubscriptions(manifest, self.ledger, rng)
        self.pending_queue = PendingQueue(database, manifest, defences=defences)
        self.pool = Pool(database, defences=defences)
        for peer in config.banned:
            self.pending_queue.forget(peer)
            self.pool.forget(peer)
        self.history = History(database)
        self._message_store = MessageStore(manifest)
        for message in self.counters.recent():
            self._message_store.put(open_message(message, manifest))
        self.ingest = Ingest(
            database=database,
            manifest=manifest,
            clock=clock,
            counters=self.counters,
            ledger=self.ledger,
            equivocation_handler=self._equivocation_handler,
            pending_queue=self.pending_queue,
            message_store=self._message_store,
            issuer=identity.public_key,
            on_fatal=on_fatal,
            on_refused=journal.refused,
            defences=defences,
        )
        self.verifier = Verifier(
            manifest,
            scorer,
            self.ledger,
            rng,
            keep_zero_advantage=config.selection == "unfiltered",
            on_verified=journal.verified_or_unusable,
            defences=defences,
        )
        self._scheduler = VerificationScheduler(
            pending_queue=self.pending_queue,
            verifier=self.verifier,
            pool=self.pool,
            ledger=self.ledger,
            rng=rng,
            defences=defences,
        )
        self._scorer = scorer
        self._policy = policy
        self._contributor = contributor
        self._rng = rng
        self._counted: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()
        """Verified groups that were never trained on, by reason, since this process began."""
        self._epoch: int | None = None
        self.stopping = trio.Event()
        self.trainer = (
            Trainer(
                database,
                self.pool,
                policy,
                correction=config.correction,
                checkpoint_every=config.checkpoint_every,
            )
            if policy
            else None
        )

    @property
    def channels(self) -> dict[str, Channel]:
        """What this node takes from the network and sends to it, by topic."""
        rollouts = {
            topic: Channel(partial(self.ingest.handle, shard=shard), self._manifest.max_message_bytes)
            for shard, topic in enumerate(self._rollouts)
        }
        return rollouts | {self._evidence: Channel(self.ingest.handle_evidence, MAX_EVIDENCE_BYTES, everybodys=True)}

    def requests(self, peers: Peers) -> Requests:
        """How this node answers peers that ask for what gossip did not bring them, and whom of its `peers` it knows."""
        responder = Responder(
            manifest=self._manifest,
            message_store=self._message_store,
            ledger=self.ledger,
            clock=self._clock,
            peers=peers,
            rng=self._rng,
        )
        return Requests(pull_protocol(self._manifest), responder.answer)

    def admits(self, peer: str) -> bool:
        """Whether a peer may connect and be heard."""
        return self.ledger.admits(peer)

    async def run(
        self,
        publish: Publish,
        *,
        rounds: int | None = None,
        on_round: Callable[[RoundReport], None] = lambda _: None,
        on_phase: Callable[[Phase | None], None] = lambda _: None,
        on_contribution: Callable[[ContributionReport], None] = lambda _: None,
    ) -> None:
        """Play `rounds` rounds, or until `stopping` is set; then write a checkpoint. Without a policy: contribute, or
        only verify, until then. `on_phase` hears what a round is doing, and None where it does nothing.
        """
        if self._policy is None or self.trainer is None:
            await self._contribute(publish, rounds, on_contribution)
            return
        pass_rates = PassRates()
        gates = Gates(self._config.gates, pass_rates)
        play = Rounds(
            contribution=self._contribution(self._policy, publish),
            scheduler=self._scheduler,
            sampler=Sampler(self.ledger, self._rng, pass_rates, self._config.selection, gates, defences=self._defences),
            pass_rates=pass_rates,
            gates=gates,
            pool=self.pool,
            trainer=self.trainer,
            ratio=ratio_of(self._config.local, self._config.external, pass_rates),
            now=self._clock.now,
            on_phase=on_phase,
            on_chosen=self._note,
        )
        await self.trainer.recover()
        if self.trainer.stored_step == 0 and not self.history.evaluations():
            await self._evaluate(0, on_phase)  # where the curve of held-out questions begins
        played = failed = 0
        while not self.stopping.is_set() and played != rounds:
            try:
                report = await self._play(play)
            except (RoundFailed, WorkerFailed) as failure:
                failed += 1
                logger.warning("round failed, %d in a row: %s", failed, failure)
                if failed == MAX_FAILED_ROUNDS:
                    raise
                await self._pause(_PAUSE)
                await self.trainer.recover()
                continue
            if report is None:
                continue
            failed = 0
            played += 1
            self._record(report)
            on_round(report)
            await self._evaluate(report.step, on_phase)
        await self.trainer.checkpoint()

    async def resend(self, publish: Publish) -> None:
        """Publish again, as they are, the envelopes of this and the last epoch."""
        for message in self.counters.recent():
            await self._publish(publish, open_message(message, self._manifest), message)

    async def pull(self, network: Acquaintances) -> None:
        """Ask peers for what gossip did not bring, and for other peers, until cancelled."""
        synchroniser = Synchroniser(
            ask=network.ask,
            peers=network.peers,
            introduce=network.introduce,
            ingest=self.ingest,
            ledger=self.ledger,
            manifest=self._manifest,
            counters=self.counters,
            clock=self._clock,
            subscriptions=self.subscriptions,
            rng=self._rng,
        )
        await synchroniser.run()

    async def listen(self, network: Network) -> None:
        """Follow the shards that this node can hear, until cancelled."""
        followed = self.subscriptions.shards
        while len(self._rollouts) > 1:
            now = self._clock.now()
            shards = self.subscriptions.at(now, self.counters.epoch(now), self.ingest.accepted - self.ingest.pulled)
            if shards != followed:
                logger.info("follows %d of %d shards: %s", len(shards), len(self._rollouts), sorted(shards))
                await network.follow([self._rollouts[shard] for shard in sorted(shards)])
                followed = shards
            await trio.sleep(_PAUSE)

    async def broadcast_evidence(self, publish: Publish) -> None:
        """Publish evidence against equivocators as it comes up, until cancelled."""
        while True:
            for evidence in self._equivocation_handler.take_announcements():
                await _send(publish, self._evidence, evidence)
            await trio.sleep(_PAUSE)

    def _contribution(self, answerer: Answerer, publish: Publish) -> Contribution:
        return Contribution(
            manifest=self._manifest,
            identity=self.identity,
            answerer=answerer,
            scorer=self._scorer,
            counters=self.counters,
            publish=partial(self._share, publish),
            rng=self._rng,
            max_tokens=self._config.max_tokens,
            model=self._config.model_label,
        )

    async def _share(self, publish: Publish, message: bytes) -> None:
        rollout = open_message(message, self._manifest)
        self._message_store.put(rollout)
        await self._publish(publish, rollout, message)

    async def _publish(self, publish: Publish, rollout: Rollout, message: bytes) -> None:
        await _send(publish, topic_of(self._manifest, rollout.opened.issuer, rollout.header.epoch), message)

    async def _play(self, play: Rounds) -> RoundReport | None:
        """One round, or None after waiting for the epoch that allows one."""
        slot = await self._reserve()
        if slot is None:
            return None
        return await play.play(slot, share=not self.counters.listening_seconds(self._clock.now()))

    async def _reserve(self) -> Slot | None:
        """The counter of the next round, or None after waiting for the epoch that allows one."""
        now = self._clock.now()
        self._advance(self.counters.epoch(now))
        slot = self.counters.reserve(now)
        if slot is None:
            logger.warning("no rounds left in this epoch (of %d); waiting for the next", self._manifest.max_rounds)
            await self._pause(max(0.0, epoch_start(self._manifest, self.counters.epoch(now) + 1) - now))
        return slot

    async def _contribute(
        self, publish: Publish, rounds: int | None, on_contribution: Callable[[ContributionReport], None]
    ) -> None:
        """Share what the contributor answers, if there is one, and verify meanwhile."""
        async with trio.open_nursery() as nursery:
            if self._contributor is not None:
                contribution = self._contribution(self._contributor, publish)
                nursery.start_soon(self._play_contribution, contribution, rounds, on_contribution)
            await self._watch()
            nursery.cancel_scope.cancel()

    async def _play_contribution(
        self, contribution: Contribution, rounds: int | None, on_contribution: Callable[[ContributionReport], None]
    ) -> None:
        def on_report(report: ContributionReport) -> None:
            with self._database.transaction():
                self.history.contribute(report)
                self._count()
            on_contribution(report)

        play = ContributionRounds(
            contribution,
            manifest=self._manifest,
            clock=self._clock,
            counters=self.counters,
            local=self._config.local,
            reserve=self._reserve,
            on_report=on_report,
        )
        await play.run(rounds)
        self.stopping.set()

    async def _watch(self) -> None:
        while not self.stopping.is_set():
            self._advance(self.counters.epoch(self._clock.now()))
            await self._scheduler.verify_pending(self._config.most_external)
            self._count()
            await self._pause(_PAUSE)

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.stopping.wait()

    def _advance(self, epoch: int) -> None:
        """What is due once per epoch."""
        if epoch == self._epoch:
            return
        self._epoch = epoch
        self.ledger.at(epoch)
        self.ingest.advance(epoch)
        self._left_out[NotDrawn.TOO_OLD] += self.pool.advance(epoch)

    def _note(self, choices: Choices) -> None:
        """Count and write down what became of the groups that a round looked at."""
        self._journal.chosen(choices)
        self._left_out.update(f"{gate} gate" for _, gate in choices.stopped)
        self._left_out.update(trained.left_out for trained in choices.external if trained.left_out)

    def _record(self, report: RoundReport) -> None:
        with self._database.transaction():
            self.history.record(report)
            self._count()

    async def _evaluate(self, step: int, on_phase: Callable[[Phase | None], None]) -> None:
        """Before the first round and every so many rounds: how the policy answers questions that no round assigns. What
        fails is left out.
        """
        every = self._config.eval_every
        if self._policy is None or not every or step % every:
            return
        on_phase("evaluate")
        try:
            result = await measure(
                self._manifest,
                self._policy,
                self._scorer,
                prompts=EVAL_PROMPTS,
                samples=1,
                max_tokens=self._config.max_tokens,
            )
        except LocalError as failure:
            logger.warning("no look at held-out questions after round %d: %s", step, failure)
        else:
            self.history.examine(step, result, at=self._clock.now())
        finally:
            on_phase(None)

    def _count(self) -> None:
        """Add to the durable counts, and to the journal, what happened since the last time."""
        self._journal.flush()
        taken = {
            ACCEPTED: self.ingest.accepted,
            PULLED: self.ingest.pulled,
            VERIFIED: self.verifier.verified,
            EVIDENCE: self.ingest.evidence,
        }
        now = {**taken, **self.ingest.refused, **self.verifier.unusable, **self._left_out}
        self.history.count({name: count - self._counted.get(name, 0) for name, count in now.items()})
        self._counted = now


async def _send(publish: Publish, topic: str, message: bytes) -> None:
    """Publish, and go on where the network is just being restarted: gossip may lose a message, a node must not stop."""
    try:
        await publish(topic, message)
    except NotRunningError as error:
        logger.warning("a message was not sent: %s", error)
