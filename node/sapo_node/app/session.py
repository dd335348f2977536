"""One session of a node: the notices to its operator, and the facts that `status` and the page show."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage

from sapo_node.app.events import Noticed, Observer
from sapo_node.app.node import Node
from sapo_node.net.interface import Network
from sapo_node.observability.dashboard import Dashboard
from sapo_node.observability.history import History
from sapo_node.observability.overview import Overview, overview
from sapo_node.observability.stored import Level, Notice, Role, SessionFacts
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.database import Database
from sapo_protocol.printable import printable

_KEPT_NOTICES = 5
"""The newest notices of each level that `status` and the page show."""
LEAST_FREE = 256 * 2**20
"""Bytes on the disk of the state below which a person is told to make room."""


class Session:
    """Begins before the node opens its database, so that a problem at the start becomes a notice, too."""

    def __init__(self, observer: Observer, role: Role, folder: Path) -> None:
        """`folder` is that of the state."""
        self._observer = observer
        self._role = role
        self._folder = folder
        self._kept: dict[Level, deque[Notice]] = {
            "attention": deque(maxlen=_KEPT_NOTICES),
            "info": deque(maxlen=_KEPT_NOTICES),
        }
        self._described: SessionFacts = {}
        self._started = self._last_connected = time.time()
        self.standing: dict[str, str] = {}
        """What is wrong now, or awaited, by the part of the node that says so."""
        self.dashboard: Dashboard | None = None
        """Set once the page is served."""

    def tell(self, text: str, level: Level = "info") -> None:
        """Send a notice to the observer, and keep it for `status` and the page. One that is repeated is kept once."""
        notice = Notice(at=round(time.time(), 3), level=level, text=printable(text))
        for same in [each for each in self._kept[level] if each["text"] == notice["text"]]:
            self._kept[level].remove(same)
        self._kept[level].appendleft(notice)
        self._observer(Noticed(notice))

    @property
    def _notices(self) -> tuple[Notice, ...]:
        return *self._kept["attention"], *self._kept["info"]

    @contextmanager
    def warnings_as_notices(self) -> Iterator[None]:
        """Within this context, warnings of the node's loggers become notices, and errors such as need a person. With
        --verbose they are logged, too.
        """
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
        connected = tuple(peer.peer_id for peer in network.peers())
        if connected:
            self._last_connected = time.time()
        self._look_at_disk()
        facts: SessionFacts = {
            **self._first_facts(node.swarm),
            **({} if connected else {"alone_since": self._last_connected}),
            "takes_none": node.config.external == 0,
            "standing": self._standing_printable(),
            "addresses": tuple(network.addresses),
            "connected": connected,
            "waiting": node.book.waiting,
            "waits": tuple(node.waits()),
            "shards": {"followed": tuple(sorted(node.subscriptions.shards)), "all": manifest.shards},
            "notices": self._notices,
        }
        if facts != self._described:
            node.history.describe_session(facts)
            self._described = facts

    def _first_facts(self, swarm: SwarmContext) -> SessionFacts:
        """The token of the page is not among them: it stays out of the database."""
        return {
            "started": self._started,
            "role": self._role,
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
        now: SessionFacts = {
            "page": self.dashboard.address if self.dashboard else "",
            "standing": self._standing_printable(),
            "notices": self._notices,
        }
        return replace(view, session={**view.session, **now})

    def note_end(self, database: Database, failure: str) -> None:
        """Store when the session ended, and by which error. A session without `stopped` was killed."""
        history = History(database)
        stored = history.session()
        if stored.get("started") == self._started:
            ended: SessionFacts = {**stored, "stopped": time.time()}
            history.describe_session({**ended, "failure": printable(failure)} if failure else ended)

    def _standing_printable(self) -> dict[str, str]:
        return {part: printable(text) for part, text in self.standing.items()}

    def _look_at_disk(self) -> None:
        if disk_usage(self._folder).free >= LEAST_FREE:
            self.standing.pop("disk", None)
        elif "disk" not in self.standing:
            self.standing["disk"] = f"less than {LEAST_FREE // 2**20} MiB are free for {self._folder}"
            self.tell(f"the disk is nearly full: {self.standing['disk']}", "attention")


class _NoticeHandler(logging.Handler):
    def __init__(self, session: Session) -> None:
        super().__init__(logging.WARNING)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        self._session.tell(record.getMessage(), "attention" if record.levelno >= logging.ERROR else "info")
