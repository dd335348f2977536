"""One session of a node: the notices to its operator, and the facts that `status` and the page show."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sapo_node.app.events import Noticed, Observer
from sapo_node.app.node import Node
from sapo_node.net.interface import Network
from sapo_node.observability.dashboard import Dashboard
from sapo_node.observability.history import History
from sapo_node.observability.overview import Overview, overview
from sapo_node.observability.stored import SessionFacts
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.database import Database
from sapo_protocol.printable import printable

_KEPT_NOTICES = 5
"""The last notices that `status` and the page show."""


class Session:
    """Begins before the node opens its database, so that a problem at the start becomes a notice, too."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._notices: deque[str] = deque(maxlen=_KEPT_NOTICES)
        self._described: SessionFacts = {}
        self._started = time.time()
        self.dashboard: Dashboard | None = None
        """Set once the page is served."""

    def tell(self, text: str) -> None:
        """Send a notice to the observer, and keep it for `status` and the page."""
        text = printable(text)
        self._notices.append(text)
        self._observer(Noticed(text))

    @contextmanager
    def warnings_as_notices(self) -> Iterator[None]:
        """Within this context, warnings of the node's loggers become notices. With --verbose they are logged, too."""
        handler = _NoticeHandler(self)
        loggers = [logging.getLogger(name) for name in ("sapo", "sapo_node")]
        for logger in loggers:
            logger.addHandler(handler)
            logger.propagate = logger.isEnabledFor(logging.INFO)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(handler)
                logger.propagate = True

    def describe_start(self, database: Database, swarm: SwarmContext) -> None:
        """Store what is known of the session while the node starts, in place of the facts of the session before."""
        History(database).describe_session(self._first_facts(swarm))

    def describe(self, node: Node, network: Network) -> None:
        """Store the facts of the session if one of them has changed."""
        manifest = node.swarm.manifest
        facts: SessionFacts = {
            **self._first_facts(node.swarm),
            "addresses": tuple(network.addresses),
            "connected": tuple(peer.peer_id for peer in network.peers()),
            "waiting": len(node.pending_queue),
            "waits": tuple(node.waits()),
            "shards": {"followed": tuple(sorted(node.subscriptions.shards)), "all": manifest.shards},
            "notices": tuple(self._notices),
        }
        if facts != self._described:
            node.history.describe_session(facts)
            self._described = facts

    def _first_facts(self, swarm: SwarmContext) -> SessionFacts:
        """The token of the page is not among them: it stays out of the database."""
        return {
            "started": self._started,
            "peer_id": swarm.identity.peer_id,
            "swarm": swarm.manifest.name,
            "network_id": swarm.manifest.network_id.hex(),
            "genesis": swarm.manifest.genesis,
            "epoch_seconds": swarm.manifest.epoch_seconds,
            "page": self.dashboard.address_without_token if self.dashboard else "",
        }

    def view(self, database: Database) -> Overview:
        """Return the overview for the observer, who is the operator: it has the page's address with the token."""
        view = overview(database)
        page = self.dashboard.address if self.dashboard else ""
        return replace(view, session={**view.session, "page": page})

    def note_end(self, database: Database) -> None:
        """Store when the session ended. A session without `stopped` was killed."""
        history = History(database)
        stored = history.session()
        if stored.get("started") == self._started:
            history.describe_session({**stored, "stopped": time.time()})


class _NoticeHandler(logging.Handler):
    def __init__(self, session: Session) -> None:
        super().__init__(logging.WARNING)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        self._session.tell(record.getMessage())
