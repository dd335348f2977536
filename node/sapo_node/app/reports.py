"""Reports what a running node does to its observer, its page and its session."""

from dataclasses import dataclass
from functools import partial

import trio

from sapo_node.app.events import Observer, Phased, Played, Refreshed, Shared, Started
from sapo_node.app.node import Node
from sapo_node.app.session import Session
from sapo_node.groups.record import ContributionReport
from sapo_node.net.interface import Network
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.storage.database import Database
from sapo_node.training.round import Phase, RoundReport

_REFRESH_INTERVAL = 3.0
"""Seconds between two updates of the counts and of the session facts."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports what the node does to the observer and to the page."""

    node: Node
    network: Network
    database: Database
    session: Session
    facts: Facts
    observer: Observer

    def started(self) -> None:
        """The node is ready."""
        self.session.describe(self.node, self.network)
        self.observer(Started(self.session.view(self.database)))

    def phase(self, phase: Phase | None) -> None:
        """A phase of a round begins; None if it ends."""
        self.facts.phase(phase)
        self.observer(Phased(phase))

    def played(self, report: RoundReport) -> None:
        """A round has ended."""
        self.session.describe(self.node, self.network)
        view = self.session.view(self.database)
        self.facts.played(report.step, view)
        self.observer(Played(report, view))

    def contributed(self, report: ContributionReport) -> None:
        """The completions of a contributor were shared."""
        self.session.describe(self.node, self.network)
        self.observer(Shared(report, self.session.view(self.database)))

    async def refresh(self) -> None:
        """Update the counts and the facts of the session periodically: a round may take minutes, or wait for the next
        epoch, and a node that does not train plays none.
        """
        while True:
            await trio.sleep(_REFRESH_INTERVAL)
            self.node.tally.count()
            self.session.describe(self.node, self.network)
            self.observer(Refreshed(partial(self.session.view, self.database)))
