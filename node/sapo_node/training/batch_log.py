"""Atomic training: a batch is stored with its step before it is dispatched, and a checkpoint names its step.

"Trained" means a step at or below that of the surviving checkpoint. After a crash of any process the stored batches
above it are replayed in order, so no group is lost and none counts twice.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sapo_node.groups.codec import from_json, to_json
from sapo_node.groups.messages import (
    ExternalObjective,
    GroupReport,
    Refusal,
    Sampled,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.types import LocalGroup, VerifiedGroup
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

_ALL_REFUSED = GroupReport(refused=Refusal.KILLED_LEARNER)

MAX_FAILURES = 10
"""A batch that ended the learner this often is given up: it must not stop the node for ever."""


def local_id(k: int) -> str:
    """The id, in requests and reports, of the group that this node generated for task `k` of its round."""
    return f"local/{k}"


def external_id(group: VerifiedGroup) -> str:
    """The id, in requests and reports, of a group of a peer."""
    return "/".join(map(str, group.place))


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The batch of one step as it was committed."""

    request: TrainRequest
    peers: Mapping[str, str]
    """The peer of each group, by the id of the group; LOCAL for this node's own."""
    failures: int
    """How often the batch killed the learner."""


class Policy(Answerer, Protocol):
    """The model that learns: its own process, in a running node."""

    @property
    def step(self) -> int:
        """The step of the weights as they are now."""
        ...

    async def train(self, step: int, groups: Sequence[TrainGroup], *, objective: ExternalObjective) -> TrainReport:
        """One update; `step` is the one after the last."""
        ...

    async def checkpoint(self) -> int:
        """Write the weights; the step they are of. The one before is kept as well."""
        ...


class Trainer:
    """Turns local and external groups into stored batches, and batches into updates."""

    def __init__(
        self,
        database: Database,
        pool: Pool,
        policy: Policy,
        *,
        objective: ExternalObjective,
        checkpoint_every: int,
    ) -> None:
        self._objective: ExternalObjective = objective
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
        groups = [
            *(_from_local(group, local_id(k)) for k, group in enumerate(local)),
            *map(from_external, external),
        ]
        peers = dict.fromkeys((group.id for group in groups), LOCAL)
        peers |= {external_id(weighted.group): weighted.group.peer for weighted in external}
        step = self.stored_step + 1
        request = to_json(TrainRequest(step, tuple(groups), self._objective))
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
            batch = stored_batch(self._database, step) or StoredBatch(TrainRequest(step, (), self._objective), {}, 0)
            given_up = batch.failures >= MAX_FAILURES
            groups = () if given_up else batch.request.groups
            try:
                report = await self._policy.train(step, groups, objective=batch.request.objective)
            except WorkerFailed as failure:
                self._database.execute("UPDATE batches SET failures = failures + 1 WHERE step = ?", step)
                logger.warning("the learner failed at step %d (%s); it resumes from its checkpoint", step, failure)
                continue
            if given_up:
                logger.warning("the batch of step %d killed the learner %d times and is given up", step, batch.failures)
                refused = dict.fromkeys(batch.peers, _ALL_REFUSED)
                report = replace(report, groups=refused, skipped=Refusal.KILLED_LEARNER)
            self._account(step, batch.peers, report)
        return report

    def _account(self, step: int, peers: Mapping[str, str], report: TrainReport) -> None:
        """Count what was trained on, once per step however often it is replayed."""
        with self._database.transaction():
            row = self._database.row("SELECT max(step) FROM trained")
            if row and row[0] is not None and row[0] >= step:
                return
            for group, peer in peers.items():
                tokens = report.groups[group].tokens
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


def stored_batch(database: Database, step: int) -> StoredBatch | None:
    """The batch of a step, or None where it is gone. Raises LocalError where it cannot be read."""
    row = database.row("SELECT request, peers, failures FROM batches WHERE step = ?", step)
    if row is None:
        return None
    body, peers = json.loads(row[0]), json.loads(row[1])
    if "correction" in body:  # as version 0.1 stored the objective
        body["objective"] = "on-policy" if body.pop("correction") == "paper" else "positive-only"
    request = from_json(TrainRequest, body)
    if isinstance(peers, list):  # as versions stored them whose groups had no ids
        peers = dict(zip((group.id for group in request.groups), peers, strict=True))
    return StoredBatch(request, peers, row[2])


def _from_local(group: LocalGroup, name: str) -> TrainGroup:
    return TrainGroup("local", group.prompt, 1.0, group.advantages, group.completions, name)


def from_external(weighted: WeightedGroup) -> TrainGroup:
    """What the learner is told of a group of others'."""
    silent = weighted.silent or ((),) * len(weighted.group.completions)
    completions = tuple(
        Sampled(each.text, each.finish.value, silent=spans)
        for each, spans in zip(weighted.group.completions, silent, strict=True)
    )
    group = weighted.group
    return TrainGroup("external", group.prompt, weighted.weight, weighted.advantages, completions, external_id(group))
