"""Writes the durable record of a node: counts, the history of rounds and, if there is one, the journal."""

import time
from collections import Counter
from collections.abc import Sequence

from sapo_node.groups.messages import TrainReport, reason_of
from sapo_node.groups.types import ContributionReport, GroupKey
from sapo_node.ingest.validator import Ingest
from sapo_node.observability.history import ACCEPTED, EVIDENCE, PULLED, VERIFIED, History
from sapo_node.observability.journal import Journal
from sapo_node.sampling.sampler import NotDrawn
from sapo_node.storage.database import Database
from sapo_node.training.batch_log import StoredBatch
from sapo_node.training.round import Choices, RoundReport
from sapo_node.training.take_back import TAKEN_BACK, Accused, TakenBack
from sapo_node.verification.verifier import Verifier


class Tally:
    """Records what happens to messages, groups and rounds."""

    def __init__(
        self, database: Database, *, history: History, ingest: Ingest, verifier: Verifier, journal: Journal | None
    ) -> None:
        self._database = database
        self._history = history
        self._ingest = ingest
        self._verifier = verifier
        self._journal = journal
        self._left_out: Counter[str] = Counter()
        """Verified groups that the node did not train on, by reason, since this process began."""
        self._counted: dict[str, int] = {}
        self._fetched: Counter[str] = Counter()
        """Rollouts of this node that were given to each peer since the last count."""

    def fetched(self, peer: str, rollouts: int) -> None:
        """A peer was given rollouts of this node because it asked."""
        self._fetched[peer] += rollouts

    def dropped(self, places: Sequence[GroupKey], why: NotDrawn) -> None:
        """Verified groups left the pool before they were drawn."""
        if self._journal:
            self._journal.dropped(places, why)
        self._left_out[why] += len(places)

    def chosen(self, choices: Choices) -> None:
        """Record which groups a round trained on, and which it left out."""
        if self._journal:
            self._journal.chosen(choices)
        self._left_out.update(reason_of(name) for _, name in choices.stopped)
        self._left_out.update(trained.left_out for trained in choices.external if trained.left_out)

    def replayed(self, batch: StoredBatch, report: TrainReport) -> None:
        """Record what became of the groups of a stored batch."""
        if self._journal:
            self._journal.replayed(batch, report)

    def taken_back(self, taken: TakenBack, accused: Accused) -> None:
        """Groups that were trained on are in the weights no more."""
        if self._journal:
            self._journal.taken_back(taken, accused)
        self._left_out[TAKEN_BACK] += len(accused)

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
        """Add to the durable counts, and to the journal, what happened since the last call."""
        if self._journal:
            self._journal.flush()
        taken = {
            ACCEPTED: self._ingest.accepted,
            PULLED: self._ingest.pulled,
            VERIFIED: self._verifier.verified,
            EVIDENCE: self._ingest.evidence,
        }
        now = {**taken, **self._ingest.refused, **self._verifier.unusable, **self._left_out}
        if now != self._counted:
            self._history.count({name: count - self._counted.get(name, 0) for name, count in now.items()})
            self._counted = now
        if self._fetched:
            self._history.fetched(self._fetched, at=time.time())
            self._fetched.clear()
