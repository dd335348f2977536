"""The log of batches: each is stored before it is dispatched, and kept while a restore may need it.

A stored batch names its groups by their numbers in the book (`groups.book`), which keeps their texts as long as a batch
needs them, and holds the part of each in the step: weight, advantages, masked spans, bounds.

Two checkpoints can be restored: the newest, and the one before, to which the learner falls back if the newest is
corrupt. The log holds every batch after the older of the two. Until there are two, it holds every batch since the
first step, so that the initial weights can be restored as well.

`trained` counts groups, tokens and positive advantage by peer. `counted` says what each stored batch added to it, so
that steps which are taken back can be subtracted.
"""

import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from sapo_node.groups import book
from sapo_node.groups.advantage import local_advantages
from sapo_node.groups.codec import Count, from_json, to_json, to_object
from sapo_node.groups.messages import (
    FilterName,
    GroupReport,
    RequestError,
    Source,
    TrainGroup,
    TrainReport,
    TrainRequest,
)
from sapo_node.groups.prompt import NO_EXAMPLES, Examples
from sapo_node.groups.record import LocalGroup, VerifiedGroup
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.storage.database import Database
from sapo_node.training import health, take_back
from sapo_node.training.take_back import Accused

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS batches (
    step INTEGER PRIMARY KEY, batch TEXT NOT NULL, failures INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS checkpoints (step INTEGER PRIMARY KEY) STRICT;
CREATE TABLE IF NOT EXISTS trained (
    peer TEXT PRIMARY KEY, groups INTEGER NOT NULL, tokens INTEGER NOT NULL, step INTEGER NOT NULL,
    advantage REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS trained_tokens ON trained (tokens);
CREATE TABLE IF NOT EXISTS counted (step INTEGER PRIMARY KEY, peers TEXT NOT NULL) STRICT;
{take_back.SCHEMA}
{health.SCHEMA}
"""


def local_id(k: int, source: Source = "local") -> str:
    """The id, in requests and reports, of the group that this node generated for task `k` of its round, or of the `k`th
    that it replays.
    """
    return f"{source}/{k}"


def external_id(group: VerifiedGroup) -> str:
    """The id, in requests and reports, of a group of a peer."""
    return "/".join(map(str, group.key))


@dataclass(frozen=True, slots=True)
class Member:
    """Facts about one group of a stored batch that the request lacks."""

    number: Count
    """The key of the group in the book."""
    peer: str
    """LOCAL for this node's own."""
    rejected: Mapping[Count, FilterName] = field(default_factory=dict)
    """By number, the correct completions that a filter rejected before the draw."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The batch of one step as it was committed."""

    request: TrainRequest
    members: Mapping[str, Member]
    """By the id of the group."""
    failures: int = 0
    """The number of times that the batch killed the learner."""

    def without(self, accused: Accused) -> "StoredBatch":
        """The batch without the accused groups, and with no failure counted: it may no longer kill the learner."""
        return replace(self._keeping(self.accused(accused)), failures=0)

    def accused(self, accused: Accused) -> set[str]:
        """The ids of the accused groups of the batch."""
        return {name for name in self.members if (self.request.step, name) in accused}

    def trained(self, report: TrainReport) -> "StoredBatch":
        """The batch without the stand-ins that were not needed. They may be drawn again."""
        return self._keeping({group.id for group in self.request.groups if group.id not in report.groups})

    def _keeping(self, gone: AbstractSet[str]) -> "StoredBatch":
        """The batch without these groups. The stand-in of one of them takes its place."""
        kept = tuple(
            replace(group, stands_in="") if group.stands_in in gone else group
            for group in self.request.groups
            if group.id not in gone
        )
        return replace(
            self,
            request=replace(self.request, groups=kept),
            members={group.id: self.members[group.id] for group in kept},
        )

    def without_restart(self) -> "StoredBatch":
        """The batch, trained from the weights after the step before."""
        return replace(self, request=replace(self.request, restart=None))


class BatchLog:
    """The stored batches and the checkpoints that follow them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def newest(self) -> int:
        """The step of the newest batch; 0 if none is stored."""
        [(step,)] = self._database.rows("SELECT max(step) FROM batches")
        return step or 0

    @property
    def newest_checkpoint(self) -> int:
        """The step of the newest checkpoint; 0 if there is none."""
        [(step,)] = self._database.rows("SELECT coalesce(max(step), 0) FROM checkpoints")
        return int(step)

    def batches(self) -> Iterator[StoredBatch]:
        """The stored batches, oldest first."""
        for (step,) in self._database.rows("SELECT step FROM batches ORDER BY step"):
            if batch := stored_batch(self._database, step):
                yield batch

    @property
    def restarts(self) -> frozenset[int]:
        """The steps of the best weights that a replay of the stored batches starts from."""
        batches = self._database.documents("SELECT batch FROM batches")
        with self._database.decoding():
            return frozenset(batch["restart"] for batch in batches if batch["restart"] is not None)

    def stored_after(self, step: int) -> int:
        """Return the number of stored batches after a step."""
        [(count,)] = self._database.rows("SELECT count(*) FROM batches WHERE step > ?", step)
        return int(count)

    def store(self, batch: StoredBatch) -> None:
        """Store a batch under its step, in place of the one that is there."""
        self._database.execute(
            "INSERT OR REPLACE INTO batches (step, batch, failures) VALUES (?, ?, ?)",
            *(batch.request.step, json.dumps(_without_texts(batch)), batch.failures),
        )

    def killed_learner(self, step: int) -> None:
        """Count a failure of the batch of a step, which killed the learner."""
        self._database.execute("UPDATE batches SET failures = failures + 1 WHERE step = ?", step)

    def checkpoint_written(self, step: int) -> int:
        """Drop the batches that neither this checkpoint nor the one before could still need. Return the last step whose
        batch is dropped.
        """
        with self._database.transaction():
            self._database.execute("INSERT OR IGNORE INTO checkpoints VALUES (?)", step)
            newest = self._database.rows("SELECT step FROM checkpoints ORDER BY step DESC LIMIT 2")
            before = newest[-1][0] if len(newest) == 2 else 0
            self._database.execute("DELETE FROM batches WHERE step <= ?", before)
            self._database.execute("DELETE FROM counted WHERE step <= ?", before)
            self._database.execute("DELETE FROM checkpoints WHERE step < ?", before)
        return int(before)

    def checkpoints_lost(self, first: int, last: int | None = None) -> None:
        """Forget the checkpoints of these steps, which the learner lost; of all after `first` if `last` is None."""
        self._database.execute("DELETE FROM checkpoints WHERE step BETWEEN ? AND coalesce(?, step)", first, last)

    def restore_point(self, first: int, *, end: int) -> int | None:
        """The newest step before step `first` that can be restored, or the oldest that can if none is before it.

        A step can be restored if each batch after it, up to step `end`, is stored.
        """
        known = [0, *(step for (step,) in self._database.rows("SELECT step FROM checkpoints"))]
        usable = [step for step in known if self.stored_after(step) == end - step]
        return max((step for step in usable if step < first), default=min(usable, default=None))

    def leave_out(self, accused: Accused, *, restored: int) -> list[int]:
        """Remove accused groups from the batches after a step that was restored, and what these batches counted. A
        replay does not start from best weights of later steps, which may hold the accused groups.

        Returns the numbers of the accused groups in the book.
        """
        numbers: list[int] = []
        with self._database.transaction():
            for batch in self.batches():
                numbers += [batch.members[name].number for name in batch.accused(accused)]
                kept = batch.without(accused)
                if (batch.request.restart or 0) > restored:
                    kept = kept.without_restart()
                if len(kept.members) < len(batch.members) or kept.request.restart != batch.request.restart:
                    self.store(kept)
            self._uncount(restored)
        return numbers

    def count(self, batch: StoredBatch, report: TrainReport) -> None:
        """Count the groups and tokens of a trained batch, once per step however often it is replayed."""
        step = batch.request.step
        counts: dict[str, tuple[int, int, float]] = {}
        for group in batch.request.groups:
            peer, trained = batch.members[group.id].peer, report.groups[group.id]
            groups, tokens, advantage = counts.get(peer, (0, 0, 0.0))
            advantage += positive_advantage(group, trained)
            counts[peer] = (groups + (trained.tokens > 0), tokens + trained.tokens, advantage)
        with self._database.transaction():
            if last_counted(self._database) >= step:
                return
            self._database.execute("INSERT OR REPLACE INTO counted VALUES (?, ?)", step, json.dumps(counts))
            for peer, each in counts.items():
                self._database.execute(
                    "INSERT INTO trained (peer, groups, tokens, advantage, step) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT (peer) DO UPDATE SET groups = groups + excluded.groups, "
                    "tokens = tokens + excluded.tokens, advantage = advantage + excluded.advantage, "
                    "step = excluded.step",
                    *(peer, *each, step),
                )

    def _uncount(self, restored: int) -> None:
        """Subtract what the steps after a restored one counted: their replay counts them anew."""
        for counts in self._database.documents("SELECT peers FROM counted WHERE step > ?", restored):
            with self._database.decoding():
                trained = [(*each, peer) for peer, each in counts.items()]
            for each in trained:
                self._database.execute(
                    "UPDATE trained SET groups = groups - ?, tokens = tokens - ?, advantage = max(0, advantage - ?) "
                    "WHERE peer = ?",
                    *each,
                )
        self._database.execute("DELETE FROM counted WHERE step > ?", restored)
        self._database.execute("UPDATE trained SET step = min(step, ?)", restored)


def trained_per_peer(database: Database) -> dict[str, tuple[int, int]]:
    """Groups and tokens trained on so far, by peer; LOCAL for this node's own."""
    rows = database.rows("SELECT peer, groups, tokens FROM trained")
    return {peer: (groups, tokens) for peer, groups, tokens in rows}


def last_counted(database: Database) -> int:
    """The newest step that was trained and counted; 0 before the first."""
    [(step,)] = database.rows("SELECT coalesce(max(step), 0) FROM trained")
    return int(step)


def positive_advantage(group: TrainGroup, trained: GroupReport) -> float:
    """The weight of a group times the sum of the positive advantages of its completions that were trained on."""
    if not trained.tokens:
        return 0.0
    without = {*trained.rejected, *trained.untrained}
    return group.weight * sum(
        advantage for number, advantage in enumerate(group.advantages) if advantage > 0 and number not in without
    )


def stored_batch(database: Database, step: int) -> StoredBatch | None:
    """The batch of a step, or None if it is gone. Raises LocalError if it cannot be read."""
    row = database.row("SELECT batch, failures FROM batches WHERE step = ?", step)
    if row is None:
        return None
    with database.decoding():
        return _with_texts(database, json.loads(row[0]), row[1])


def _without_texts(batch: StoredBatch) -> dict[str, Any]:
    """The request as JSON, with the member in place of the texts of each group, and with each set of worked examples
    once.
    """
    body = to_object(batch.request)
    examples: list[Any] = []
    for group in body["groups"]:
        if group["examples"] not in examples:
            examples.append(group["examples"])
        group["examples"] = examples.index(group["examples"])
        group["masked_spans"] = [each["silent"] for each in group.pop("completions")]
        group["member"] = to_object(batch.members[group["id"]])
        del group["prompt"], group["levels"]
    return {**body, "examples": examples}


def _with_texts(database: Database, body: dict[str, Any], failures: int) -> StoredBatch:
    """Raises an error of `Database.decoding`."""
    members: dict[str, Member] = {}
    examples = body.pop("examples")
    for group in body["groups"]:
        member = members[group["id"]] = from_json(Member, group.pop("member"))
        entry = book.by_number(database, member.number)
        if entry is None:
            raise ValueError(f"the book lacks group {member.number} of a stored batch")
        kept = list(range(len(entry.completions)))
        if len(group["advantages"]) < len(kept):  # a replayed group has the completions above its mean alone
            kept = [number for number, advantage in enumerate(local_advantages(entry.levels)) if advantage > 0]
        texts = zip(kept, group.pop("masked_spans"), strict=True)
        group["completions"] = [{**to_json(entry.completions[number]), "silent": spans} for number, spans in texts]
        group |= {"prompt": entry.prompt, "levels": to_json(entry.levels.only(kept))}
        group["examples"] = examples[group["examples"]]
    try:
        return StoredBatch(from_json(TrainRequest, body), members, failures)
    except RequestError as error:
        raise ValueError(error) from error


def from_local(group: LocalGroup, k: int, examples: Examples = NO_EXAMPLES, source: Source = "local") -> TrainGroup:
    """Return a local group as the learner gets it; `k` as in `local_id`."""
    name = local_id(k, source)
    shown = examples.prompt(group.dataset, group.prompt).examples
    return TrainGroup(
        source=source,
        prompt=group.prompt,
        weight=1.0,
        advantages=group.advantages,
        completions=group.completions,
        id=name,
        examples=shown,
        levels=group.levels,
    )


def from_external(weighted: WeightedGroup, examples: Examples = NO_EXAMPLES) -> TrainGroup:
    """Return an external group as the learner gets it."""
    silent = weighted.silent or ((),) * len(weighted.group.completions)
    completions = tuple(
        replace(each, silent=spans) for each, spans in zip(weighted.group.completions, silent, strict=True)
    )
    group = weighted.group
    return TrainGroup(
        source="external",
        prompt=group.prompt,
        weight=weighted.weight,
        advantages=weighted.advantages,
        completions=completions,
        id=external_id(group),
        examples=examples.prompt(group.dataset, group.prompt).examples,
        levels=group.levels,
        stands_in=external_id(weighted.stands_in) if weighted.stands_in else "",
        bounds=weighted.bounds,
    )
