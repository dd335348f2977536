"""Atomic training: a batch is stored with its step before it is dispatched, and a checkpoint names its step.

"Trained" means a step at or below that of the surviving checkpoint. After a crash of any process the stored batches
above it are replayed in order, so no group is lost and none counts twice.

The same replay takes steps back: from a checkpoint before the first accused group, without the accused groups.

    taken = await trainer.take_back(lambda group, peer: ..., "completions said", "hail the swarm")
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import trio

from sapo_node.groups.book import Book
from sapo_node.groups.messages import (
    ExternalObjective,
    FilterName,
    GroupReport,
    Refusal,
    RequestError,
    TrainGroup,
    TrainReport,
    TrainRequest,
    reason_of,
)
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.groups.record import LOCAL, LocalGroup, Outcome
from sapo_node.groups.stats import Interval
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.database import Database, StateError
from sapo_node.training.batch_log import (
    BatchLog,
    Member,
    StoredBatch,
    external_id,
    from_external,
    from_local,
    local_id,
    stored_batch,
)
from sapo_node.training.health import Health
from sapo_node.training.rollout import Policy
from sapo_node.training.take_back import TAKEN_BACK, TakeBacks, TakenBack
from sapo_protocol import LocalError

logger = logging.getLogger(__name__)

_ALL_REFUSED = GroupReport(refused=Refusal.KILLED_LEARNER)

NOTHING_LEFT = "every token masked"
"""The reason of a group whose correct completions hold only masked phrases."""
MAX_FAILURES = 10
"""A batch that ended the learner this often is given up, and so is a restore: neither may stop the node forever."""
MAX_MISSING = 1_000_000
"""Steps without a stored batch that a start leaves empty. A step beyond them was not written by a node."""


class Trainer:
    """Turns local and external groups into stored batches, and batches into updates."""

    def __init__(
        self,
        database: Database,
        book: Book,
        policy: Policy,
        *,
        objective: ExternalObjective,
        checkpoint_every: int,
        now: Callable[[], float] = time.time,
        examples: Examples = NO_EXAMPLES,
        asked: str = "",
    ) -> None:
        """`now` gives the Unix time. `asked` is that of `Health`."""
        self._objective: ExternalObjective = objective
        self._database = database
        self._log = BatchLog(database)
        self._take_backs = TakeBacks(database)
        self._book = book
        self._policy = policy
        self._checkpoint_every = checkpoint_every
        self._now = now
        self._examples = examples
        self.health = Health(database, now, asked)

    @property
    def stored_step(self) -> int:
        """The step of the newest stored batch, or of the policy if none is stored."""
        return max(self._policy.step, self._log.newest)

    async def train(
        self, local: Sequence[LocalGroup], external: Sequence[WeightedGroup], replayed: Sequence[LocalGroup] = ()
    ) -> TrainReport:
        """Commit one batch and train on it, also if a process dies in between. `external` are drawn groups and
        stand-ins, `replayed` local groups of earlier rounds.
        """
        batch = self._commit(local, external, replayed)
        step = batch.request.step
        report = await self._catch_up(step, batch)
        # Not only after a multiple: the learner may have died in the round that should have written one.
        if step // self._checkpoint_every > self._log.newest_checkpoint // self._checkpoint_every:
            await self.checkpoint()
        return report

    async def checkpoint(self) -> None:
        """Write the weights, and drop the batches that neither this checkpoint nor the one before could still need."""
        step = await self._policy.checkpoint()
        with self._database.transaction():
            self._book.release(self._log.checkpoint_written(step))

    async def evaluated(self, step: int, held_out: Interval) -> None:
        """Take in an evaluation of the averaged weights after a step, and keep them if they are the best so far. Raises
        LocalError if they cannot be kept: the evaluation then counts for nothing, and has to be made again.
        """
        if self.health.is_best(held_out):
            try:
                await self._policy.keep_best(step, self.health.needed | self._log.restarts)
            except (RequestError, WorkerFailed) as failure:
                raise LocalError(f"its weights are the best so far and cannot be kept: {failure}") from failure
        self.health.evaluated(step, held_out)

    async def recover(self) -> int:
        """Finish the work that a crash interrupted: steps that were being taken back, then stored batches that are not
        in the surviving checkpoint. Return the number of replayed steps.
        """
        started = time.monotonic()
        restored = [taken for taken in self._take_backs.unfinished() if await self._take_out(taken)]
        replayed = await self._replay()
        for taken in restored:
            logger.warning("%s", self._take_backs.finished(taken, time.monotonic() - started))
        return replayed

    async def take_back(
        self, accused: Callable[[TrainGroup, str], bool], reason: str, phrase: str = ""
    ) -> TakenBack | None:
        """Leave external groups out of the last steps, as if the node had never trained on them.

        `accused` is asked of each external group of the stored batches, with the peer of the group. None if no batch
        that can be taken back holds an accused group. If the learner cannot restore the checkpoint, the result has a
        `failure` and nothing has changed. `reason` says why in a few words, and `phrase` quotes the accused texts.
        """
        found: dict[tuple[int, str], str] = {}
        for batch in self._log.batches():
            for group in batch.request.groups:
                # To ask of long texts takes seconds, so other tasks run between two groups.
                await trio.lowlevel.checkpoint()
                if group.source == "external" and accused(group, batch.members[group.id].peer):
                    found[batch.request.step, group.id] = batch.members[group.id].peer
        if not found:
            return None
        end = self.stored_step
        start = self._log.restore_point(min(step for step, _ in found), end=end)
        peers = {place: peer for place, peer in found.items() if start is not None and place[0] > start}
        if start is None or not peers:
            logger.warning("%d accused groups are in steps that can no longer be taken back", len(found))
            return None
        self._take_backs.begin(peers, restored=start, replayed=end, reason=reason, phrase=phrase, at=self._now())
        await self.recover()
        taken = self._take_backs.newest()
        if not taken.failure:
            # Else the next alarm would find no checkpoint after the restored one, and replay these steps again.
            await self.checkpoint()
        return taken

    def _commit(
        self, local: Sequence[LocalGroup], external: Sequence[WeightedGroup], replayed: Sequence[LocalGroup] = ()
    ) -> StoredBatch:
        groups = [
            *(from_local(group, k, self._examples) for k, group in enumerate(local)),
            *(from_local(group, k, self._examples, "replay") for k, group in enumerate(replayed)),
            *(from_external(weighted, self._examples) for weighted in external),
        ]
        step = self.stored_step + 1
        # Durably: a checkpoint of this step must not survive a power cut that brings its groups back on offer.
        with self._database.transaction(durable=True):
            scale, restart = self.health.rate_scale, self.health.take_restart()
            request = TrainRequest(
                step=step, groups=tuple(groups), objective=self._objective, rate_scale=scale, restart=restart
            )
            members = {local_id(k): Member(self._book.enter(step, group), LOCAL) for k, group in enumerate(local)}
            for k, group in enumerate(replayed):
                members[local_id(k, "replay")] = Member(self._book.enter_again(step, group), LOCAL)
            for each in external:
                number = self._book.commit(step, each.group, stands_in=each.stands_in is not None)
                members[external_id(each.group)] = Member(number, each.group.peer, each.stopped)
            batch = StoredBatch(request, members)
            self._log.store(batch)
        return batch

    async def _take_out(self, taken: TakenBack) -> bool:
        """Have the learner restore a step, and take the accused groups out of the log. Return whether that is done."""
        accused = self._take_backs.accused(taken)
        if not accused:
            return True  # it was done before a crash
        failure = await self._restore(taken.restored)
        with self._database.transaction():
            if failure:
                self._log.checkpoints_lost(taken.restored, taken.restored)
                logger.warning("%s", self._take_backs.failed(taken, failure))
            else:
                numbers = self._log.leave_out(accused, restored=taken.restored)
                self.health.forget_after(taken.restored)
                self._take_backs.restored(taken)
                self._book.take_back(numbers, taken.why, counted=TAKEN_BACK)
        return not failure

    async def _restore(self, step: int) -> str:
        """Have the learner restore a step, or stay at an earlier one. Return the error; empty if there was none."""
        for _ in range(MAX_FAILURES):
            try:
                await self._policy.restore(step)
            except WorkerFailed as failure:
                logger.warning("the learner failed while it restored step %d (%s); the node asks again", step, failure)
            except RequestError as refusal:
                return str(refusal)
            else:
                return ""
        return f"the learner failed {MAX_FAILURES} times"

    async def _replay(self) -> int:
        """Train the stored batches that the policy has not trained on. Return their number."""
        start, end = self._policy.step, self.stored_step
        missing = end - start - self._log.stored_after(start)
        if missing > MAX_MISSING:
            raise StateError(f"the stored batch of step {end} is damaged; restore the state from a backup")
        if missing > 0:
            logger.warning("%d of the steps after %d are gone; they are left empty", missing, start)
        if start < end:
            await self._catch_up(end)
        return end - start

    async def _catch_up(self, target: int, committed: StoredBatch | None = None) -> TrainReport:
        """Train the stored batches up to `target`, again from the surviving checkpoint if the learner dies.

        The report has an entry for each group of the batch `target`, also if that batch is given up. `committed` is
        that batch if it has just been stored: it is not read again unless its step fails.
        """
        report: TrainReport | None = None
        while report is None or self._policy.step < target:
            step = self._policy.step + 1
            # A checkpoint of a step that is still to come was damaged, and does not count as the one before.
            self._log.checkpoints_lost(step)
            fresh = committed if step == target else None
            batch, committed = fresh or self._stored(step), None
            given_up = batch.failures >= MAX_FAILURES
            try:
                report = await self._policy.train(
                    TrainRequest(step, (), self._objective) if given_up else batch.request
                )
            except WorkerFailed as failure:
                self._log.killed_learner(step)
                logger.warning("the learner failed at step %d (%s); it resumes from its checkpoint", step, failure)
                continue
            except RequestError as refusal:
                if batch.request.restart is None:
                    raise
                self._log.store(batch.without_restart())
                logger.warning(
                    "step %d cannot start from the best weights (%s); it starts from the last", step, refusal
                )
                continue
            if given_up:
                logger.error("the batch of step %d killed the learner %d times and is given up", step, batch.failures)
                refused = dict.fromkeys(batch.members, _ALL_REFUSED)
                report = replace(report, groups=refused, skipped=Refusal.KILLED_LEARNER)
            self._trained(batch, report)
        return report

    def _stored(self, step: int) -> StoredBatch:
        """The stored batch of a step, or an empty one where it is gone."""
        return stored_batch(self._database, step) or StoredBatch(TrainRequest(step, (), self._objective), {})

    def _trained(self, batch: StoredBatch, report: TrainReport) -> None:
        """Count a batch, and enter the results of its groups in the book. The unneeded stand-ins leave the batch."""
        trained = batch.trained(report)
        step = batch.request.step
        # Durably: a checkpoint of this step must not survive a power cut that brings a stand-in back on offer.
        with self._database.transaction(durable=len(batch.request.placed) < len(batch.members)):
            self._log.count(trained, report)
            if len(trained.members) < len(batch.members):
                self._log.store(trained)
            for group in trained.request.groups:
                if group.source != "replay":
                    member, became = trained.members[group.id], report.groups[group.id]
                    rejected = {**member.rejected, **became.rejected}
                    why = _left_out(became, rejected) if group.source == "external" else became.refused or ""
                    self._book.report(step, member.number, why, _outcome(group, became, rejected))


def _left_out(report: GroupReport, rejected: Mapping[int, FilterName]) -> str:
    """Return the reason for which no token of a group was trained on, given the filters in `rejected`; empty if one
    was.
    """
    if report.tokens:
        return ""
    if report.refused:
        return report.refused
    filters = Counter(rejected.values()).most_common(1)
    return reason_of(filters[0][0]) if filters else NOTHING_LEFT


def _outcome(group: TrainGroup, report: GroupReport, rejected: Mapping[int, FilterName]) -> Outcome:
    spans = tuple(each.silent for each in group.completions)
    return Outcome(
        weight=group.weight,
        advantages=group.advantages,
        masked_spans=spans if any(spans) else (),
        rejected=rejected,
        untrained=report.untrained,
        tokens=report.tokens,
        masked=report.masked,
    )
