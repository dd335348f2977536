"""Atomic training: a batch is stored with its step before it is dispatched, and a checkpoint names its step.

"Trained" means a step at or below that of the surviving checkpoint. After a crash of any process the stored batches
above it are replayed in order, so no group is lost and none counts twice.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sapo_node.groups.messages import (
    Correction,
    Refusal,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
    train_from_json,
    train_to_json,
)
from sapo_node.groups.types import LocalGroup
from sapo_node.processes.worker import WorkerFailed
from sapo_node.sampling.buffer import Pool
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.database import Database
from sapo_node.training.rollout import Answerer

logger = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    step INTEGER PRIMARY KEY, request TEXT NOT NULL, peers TEXT NOT NULL, failures INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS checkpoints (step INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS trained (
    peer TEXT PRIMARY KEY, groups INTEGER NOT NULL, tokens INTEGER NOT NULL, step INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS trained_tokens ON trained (tokens);
"""

LOCAL = ""
"""Stands for this node itself where a batch lists the peer of each group."""

MAX_FAILURES = 10
"""A batch that ended the learner this often is given up: it must not stop the node for ever."""


class Policy(Answerer, Protocol):
    """The model that learns: its own process, in a running node."""

    @property
    def step(self) -> int:
        """The step of the weights as they are now."""
        ...

    async def train(self, step: int, groups: Sequence[TrainGroup], *, correction: Correction) -> TrainReport:
        """One update; `step` is the one after the last."""
        ...

    async def checkpoint(self) -> int:
        """Write the weights; the step they are of. The one before is kept as well."""
        ...


class Trainer:
    """Turns local and external groups into stored batches, and batches into updates."""

    def __init__(
        self, database: Database, pool: Pool, policy: Policy, *, correction: Correction, checkpoint_every: int
    ) -> None:
        self._correction: Correction = correction
        self._database = database
        self._pool = pool
        self._policy = policy
        self._checkpoint_every = checkpoint_every

    @property
    def stored_step(self) -> int:
        """The step of the newest stored batch, or of the policy where none is stored."""
        row = self._database.row("SELECT max(step) FROM batches")
        return max(self._policy.step, row[0] if row and row[0] else 0)

    async def train(self, local: Sequence[LocalGroup], external: Sequence[WeightedGroup]) -> TrainReport:
        """Commit one batch and train on it, whatever dies in between."""
        step = self._commit(local, external)
        report = await self._catch_up(step)
        if step % self._checkpoint_every == 0:
            await self.checkpoint()
        return report

    async def recover(self) -> int:
        """Replay what was stored but is not in the surviving checkpoint; the number of steps replayed."""
        start, end = self._policy.step, self.stored_step
        (available,) = self._database.row("SELECT count(*) FROM batches WHERE step > ?", start) or (0,)
        if available < end - start:
            logger.warning("%d of the steps after %d are gone; they are left empty", end - start - available, start)
        if start < end:
            await self._catch_up(end)
        return end - start

    async def checkpoint(self) -> None:
        """Write the weights, and drop the batches that neither this checkpoint nor the one before could still need."""
        step = await self._policy.checkpoint()
        with self._database.transaction():
            self._database.execute("INSERT OR IGNORE INTO checkpoints VALUES (?)", step)
            newest = self._database.rows("SELECT step FROM checkpoints ORDER BY step DESC LIMIT 2")
            before = newest[-1][0] if len(newest) == 2 else 0
            self._database.execute("DELETE FROM batches WHERE step <= ?", before)
            self._database.execute("DELETE FROM checkpoints WHERE step < ?", before)

    def _commit(self, local: Sequence[LocalGroup], external: Sequence[WeightedGroup]) -> int:
        groups = [*map(_from_local, local), *map(from_external, external)]
        peers = [LOCAL] * len(local) + [weighted.group.peer for weighted in external]
        step = self.stored_step + 1
        request = train_to_json(TrainRequest(step, tuple(groups), self._correction))["train"]
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO batches VALUES (?, ?, ?, 0)",
                step,
                json.dumps(request),
                json.dumps(peers),
            )
            self._pool.remove(weighted.group for weighted in external)
        return step

    async def _catch_up(self, target: int) -> TrainReport:
        """Train the stored batches up to `target`, again from the surviving checkpoint if the learner dies.

        The report has an entry for each group of the batch `target`, also where that batch is given up.
        """
        report: TrainReport | None = None
        while report is None or self._policy.step < target:
            step = self._policy.step + 1
            # A checkpoint of a step that is still to come was damaged, and does not count as the one before.
            self._database.execute("DELETE FROM checkpoints WHERE step >= ?", step)
            request, peers, failures = self._stored(step)
            given_up = failures >= MAX_FAILURES
            groups = () if given_up else request.groups
            try:
                report = await self._policy.train(step, groups, correction=request.correction)
            except WorkerFailed as failure:
                self._database.execute("UPDATE batches SET failures = failures + 1 WHERE step = ?", step)
                logger.warning("the learner failed at step %d (%s); it resumes from its checkpoint", step, failure)
                continue
            if given_up:
                logger.warning("the batch of step %d killed the learner %d times and is given up", step, failures)
                report = _untrained(report, len(request.groups))
            self._account(step, peers, report)
        return report

    def _stored(self, step: int) -> tuple[TrainRequest, list[str], int]:
        """The stored batch of a step, the peer of each group, and how often the batch killed the learner; an empty
        batch where it is gone.
        """
        row = self._database.row("SELECT request, peers, failures FROM batches WHERE step = ?", step)
        if row is None:
            return TrainRequest(step, (), self._correction), [], 0
        return train_from_json(json.loads(row[0])), json.loads(row[1]), row[2]

    def _account(self, step: int, peers: Sequence[str], report: TrainReport) -> None:
        """Count what was trained on, once per step however often it is replayed."""
        with self._database.transaction():
            row = self._database.row("SELECT max(step) FROM trained")
            if row and row[0] is not None and row[0] >= step:
                return
            for peer, tokens in zip(peers, report.group_tokens, strict=True):
                self._database.execute(
                    "INSERT INTO trained VALUES (?, ?, ?, ?) ON CONFLICT (peer) DO UPDATE SET "
                    "groups = groups + excluded.groups, tokens = tokens + excluded.tokens, step = excluded.step",
                    peer,
                    int(tokens > 0),
                    tokens,
                    step,
                )


def trained_per_peer(database: Database) -> dict[str, tuple[int, int]]:
    """Groups and tokens trained on so far, by peer; LOCAL for this node's own."""
    rows = database.rows("SELECT peer, groups, tokens FROM trained")
    return {peer: (groups, tokens) for peer, groups, tokens in rows}


def _untrained(report: TrainReport, groups: int) -> TrainReport:
    """The report of an empty step as that of a batch of so many groups which the learner never survived."""
    nothing = (0,) * groups
    refused = tuple((index, Refusal.KILLED_LEARNER) for index in range(groups))
    return replace(report, group_tokens=nothing, group_masked=nothing, refused=refused, skipped=Refusal.KILLED_LEARNER)


def _from_local(group: LocalGroup) -> TrainGroup:
    return TrainGroup("local", group.prompt, 1.0, group.advantages, group.completions)


def from_external(weighted: WeightedGroup) -> TrainGroup:
    """What the learner is told of a group of others'."""
    silent = weighted.silent or ((),) * len(weighted.group.completions)
    completions = tuple(
        Sampled(each.text, each.finish.value, silent=spans)
        for each, spans in zip(weighted.group.completions, silent, strict=True)
    )
    return TrainGroup("external", weighted.group.prompt, weighted.weight, weighted.advantages, completions)
