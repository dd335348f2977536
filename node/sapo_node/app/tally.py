"""Writes the durable record of a node: counts, and the history of rounds."""

import time
from collections import Counter

from sapo_node.groups.book import Book
from sapo_node.groups.record import ContributionReport
from sapo_node.ingest.validator import Ingest
from sapo_node.observability.history import ACCEPTED, EVIDENCE, PULLED, VERIFIED, History
from sapo_node.storage.database import Database
from sapo_node.training.round import RoundReport
from sapo_node.verification.verifier import Verifier


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
        """A peer was given rollouts of this node because it asked."""
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
