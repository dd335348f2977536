"""Plays the rounds of a node. A node with a policy trains. Any other node contributes, or only verifies and relays."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from sapo_node.app.advice import LearningSignal
from sapo_node.app.exchange import Publish, share
from sapo_node.app.node import Node
from sapo_node.app.recipe import recipe_of
from sapo_node.contributors.rounds import ContributionRounds
from sapo_node.feed.policy import RemotePolicy
from sapo_node.groups.record import ContributionReport
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.external import ExternalSampler
from sapo_node.training.evaluation import heldout_prompts, measure
from sapo_node.training.health import NO_CHANCE
from sapo_node.training.rollout import Answerer, Contribution, Policy, RoundFailed
from sapo_node.training.round import Phase, Replay, RoundReport, Rounds
from sapo_node.training.trainer import Trainer
from sapo_protocol import LocalError

_INTAKE_INTERVAL = 1.0
"""Seconds between two looks at the pending queue."""

OnContribution = Callable[[ContributionReport], None]


async def contribute(
    node: Node, contribution: Contribution | None, *, rounds: int | None, on_contribution: OnContribution
) -> None:
    """Verify pending rollouts until the node stops. If there is a contribution, share `rounds` rounds of it."""
    async with trio.open_nursery() as nursery:
        if contribution is not None:
            nursery.start_soon(_share_rounds, node, contribution, rounds, on_contribution)
        await _verify_pending(node)
        nursery.cancel_scope.cancel()


async def _share_rounds(
    node: Node, contribution: Contribution, rounds: int | None, on_contribution: OnContribution
) -> None:
    def on_report(report: ContributionReport) -> None:
        node.tally.contributed(report)
        on_contribution(report)

    play = ContributionRounds(
        node.swarm,
        contribution,
        counters=node.counters,
        local=node.config.local,
        reserve=node.epochs.reserve,
        on_report=on_report,
        standing=node.standing,
    )
    await play.run(rounds)
    node.stopping.set()


async def _verify_pending(node: Node) -> None:
    while not node.stopping.is_set():
        node.epochs.enter_current()
        await node.scheduler.verify_pending(node.config.most_external)
        node.tally.count()
        await node.epochs.pause(_INTAKE_INTERVAL)


logger = logging.getLogger(__name__)

OnPhase = Callable[[Phase | None], None]
"""Called with each phase of a round as it begins, and with None as it ends."""

MAX_FAILED_ROUNDS = 5
"""Rounds that may fail in a row before the node gives up with the last error."""
EVALUATION_PROMPTS = 16
"""Prompts of each task, always the same. One evaluation has a wide interval; the curve has many."""
_RETRY_SECONDS = 1.0


class TrainingLoop:
    """Plays round after round. Each begins with the weights of the last step, also if the learner died since."""

    def __init__(
        self,
        node: Node,
        policy: Policy,
        trainer: Trainer,
        contribution: Contribution,
        *,
        on_phase: OnPhase,
        wanted: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`policy` and `trainer` are those of the node. A round begins when `wanted` has returned."""
        self._node = node
        self._policy = policy
        self._trainer = trainer
        self._contribution = contribution
        self._on_phase = on_phase
        self._wanted = wanted
        self._next_evaluation = self._after_newest_evaluation()
        """The step from which on an evaluation is due."""
        self._wait = 1
        """Rounds until an evaluation that fails is tried again."""
        self._signal = LearningSignal(node.config, node.swarm.manifest.max_completion_bytes, node.standing)

    async def run(self, rounds: int | None, on_round: Callable[[RoundReport], None]) -> None:
        """Play `rounds` rounds, or until the node is to stop; then write a checkpoint.

        Raises RoundFailed or WorkerFailed after MAX_FAILED_ROUNDS failures in a row.
        """
        node, play = self._node, self._rounds()
        await self._trainer.recover()  # a node that waits for the next epoch shows the step that it had reached
        if node.config.eval_every:
            prompts = await heldout_prompts(node.swarm.manifest, node.scorer, EVALUATION_PROMPTS)
            node.verifier.held_out.update(prompts)
        await self._evaluate(self._trainer.stored_step)  # the first one, or one that the end of the node interrupted
        played = failed = 0
        while not node.stopping.is_set() and played != rounds:
            try:
                report = await self._play(play)
            except (RoundFailed, WorkerFailed) as failure:
                failed += 1
                node.standing["rounds"] = (
                    f"{failed} of at most {MAX_FAILED_ROUNDS} failed in a row; the last: {failure}"
                )
                logger.error("round failed, %d in a row: %s", failed, failure)
                if failed == MAX_FAILED_ROUNDS:
                    raise
                await node.epochs.pause(_RETRY_SECONDS)
                continue
            if report is None:
                continue
            failed = 0
            node.standing.pop("rounds", None)
            played += 1
            node.tally.played(report)
            self._signal.played(report)
            on_round(report)
            await self._evaluate(report.step)
        await self._trainer.checkpoint()

    def _rounds(self) -> Rounds:
        node, config = self._node, self._node.config
        external = ExternalSampler(
            node.database,
            node.ledger,
            node.swarm.rng,
            local=config.local,
            external=config.external,
            filters=config.filters,
            selection=config.selection,
            objective=config.external_objective,
            limits=node.parts.limits,
            filters_type=node.parts.filters,
            sampler_type=node.parts.sampler,
        )
        return Rounds(
            contribution=self._contribution,
            scheduler=node.scheduler,
            book=node.book,
            external=external,
            trainer=self._trainer,
            replay=Replay() if config.replay and config.train else None,
            held_out=node.verifier.held_out,
            now=node.swarm.clock.now,
            on_phase=self._on_phase,
        )

    async def _play(self, play: Rounds) -> RoundReport | None:
        """One round, or None after waiting for the epoch that allows one."""
        if self._wanted:
            self._node.standing["trainer"] = "asks for no work"
            await self._wanted()
            del self._node.standing["trainer"]
        slot = await self._node.epochs.reserve()
        if slot is None:
            return None
        # The learner may have died in the round before, in an evaluation, or while the node waited.
        await self._trainer.recover()
        clock = self._node.swarm.clock
        listening = self._node.counters.listening_seconds(clock.now(), clock.steady())
        due = self._node.publication.is_due(slot.epoch, slot.counter, self._node.config.local)
        return await play.play(slot, share=due and not listening)

    def _after_newest_evaluation(self) -> int:
        """The next multiple of `eval_every` after the newest evaluation; 0 before the first one."""
        newest = max((each["step"] for each in self._node.history.evaluations()), default=None)
        every = max(1, self._node.config.eval_every)
        return 0 if newest is None else (newest // every + 1) * every

    async def _evaluate(self, step: int) -> None:
        """Measure pass@1 of the averaged weights on prompts that no round assigns: before the first round and every
        `eval_every` rounds. An evaluation that fails, or that a failure skipped, runs after the next round. If it fails
        again, the rounds until the next attempt double, up to `eval_every`.
        """
        node, every = self._node, self._node.config.eval_every
        if not every or step < self._next_evaluation:
            return
        self._on_phase("evaluate")
        try:
            result = await measure(
                node.swarm.manifest,
                self._policy,
                node.scorer,
                prompts=EVALUATION_PROMPTS,
                samples=1,
                max_tokens=recipe_of(node.config).max_tokens,
                examples=node.examples,
                stopping=node.stopping.is_set,
            )
            node.history.examine(step, result, at=node.swarm.clock.now())
            await self._trainer.evaluated(step, result.mean(NO_CHANCE))
        except LocalError as failure:
            self._next_evaluation = step + self._wait
            self._wait = min(2 * self._wait, every)
            logger.warning(
                "the held-out evaluation after round %d failed: %s; the node tries again after round %d",
                *(step, failure, self._next_evaluation),
            )
        else:
            self._next_evaluation, self._wait = self._after_newest_evaluation(), 1
        finally:
            self._on_phase(None)


async def run_node(
    node: Node,
    publish: Publish,
    *,
    rounds: int | None = None,
    on_round: Callable[[RoundReport], None] = lambda _: None,
    on_phase: OnPhase = lambda _: None,
    on_contribution: OnContribution = lambda _: None,
) -> None:
    """Play `rounds` rounds, or until `node.stopping` is set. A node that trains writes a checkpoint when it stops.

    Raises RoundFailed or WorkerFailed when too many rounds fail in a row.
    """
    if node.policy is None or node.trainer is None:
        contributed = _contribution(node, node.contributor, publish) if node.contributor else None
        await contribute(node, contributed, rounds=rounds, on_contribution=on_contribution)
    else:
        contribution = _contribution(node, node.policy, publish)
        wanted = node.policy.wanted if isinstance(node.policy, RemotePolicy) else None
        loop = TrainingLoop(node, node.policy, node.trainer, contribution, on_phase=on_phase, wanted=wanted)
        await loop.run(rounds, on_round)


def _contribution(node: Node, answerer: Answerer, publish: Publish) -> Contribution:
    return Contribution(
        node.swarm,
        answerer=answerer,
        scorer=node.scorer,
        counters=node.counters,
        publish=partial(share, node, publish),
        max_tokens=recipe_of(node.config).max_tokens,
        model=node.config.model_label,
        examples=node.examples,
    )
