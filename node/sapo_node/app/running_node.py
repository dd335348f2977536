"""A running node: the core of `node.py` with its network, its jail, its learner and its state on disk."""

import logging
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from sapo_node.app.config import Config
from sapo_node.app.learner_options import learner_options
from sapo_node.app.node import Node
from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.groups.types import ContributionReport
from sapo_node.learner.client import Learner
from sapo_node.net.anchors import Anchors
from sapo_node.net.interface import NetworkNotice, PeerConnected
from sapo_node.net.libp2p import Libp2pNetwork, NetworkSettings
from sapo_node.observability.dashboard import Dashboard, parse_place
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.history import History
from sapo_node.observability.journal import Journal
from sapo_node.observability.overview import Overview, overview
from sapo_node.processes.clock import SystemClock
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.fingerprint import GroupKey
from sapo_node.storage.keys import Identity
from sapo_node.training.rollout import Answerer
from sapo_node.training.round import Phase, RoundReport
from sapo_node.verification.compatibility import require_catalogue
from sapo_node.verification.sandbox import Sandbox
from sapo_protocol import LocalError, Manifest, load_manifest
from sapo_protocol.printable import printable

_KEPT_NOTICES = 5
_KEEP_OUT_INTERVAL = 1.0
_REMEMBER_INTERVAL = 30.0
_REFRESH_INTERVAL = 3.0
_RESEND_DELAY = 3.0
"""Seconds from the first connection to sending recent envelopes again: by then the gossip mesh stands."""


@dataclass(frozen=True, slots=True)
class Started:
    """The node listens, and its processes are up."""

    overview: Overview


@dataclass(frozen=True, slots=True)
class Played:
    """A round is over."""

    report: RoundReport
    overview: Overview


@dataclass(frozen=True, slots=True)
class Shared:
    """A round of a node that does not train is shared."""

    report: ContributionReport
    overview: Overview


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Some seconds have passed; the overview holds the facts of now."""

    overview: Overview


@dataclass(frozen=True, slots=True)
class Phased:
    """A round has come to its next phase, or does nothing for the moment."""

    phase: Phase | None


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something that a person may want to know."""

    text: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The node has stopped in order."""

    overview: Overview


Event = Started | Refreshed | Phased | Played | Shared | Noticed | Stopped
Observer = Callable[[Event], None]


def network_settings(
    config: Config, manifest: Manifest, identity: Identity, anchors: tuple[str, ...] = ()
) -> NetworkSettings:
    """What the network is told at its start."""
    return NetworkSettings(
        seed=identity.seed,
        network_id=manifest.network_id.hex(),
        listen=config.listen,
        announce=config.announce,
        bootstrap=config.bootstrap,
        anchors=anchors,
        discover=config.mdns,
    )


class _WarningsAsNotices(logging.Handler):
    """What the node's parts log as a warning is something that its operator wants to see."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextmanager
def _warnings_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Hand warnings to `tell` in place of the log, or beside it where the log is verbose anyway."""
    handler = _WarningsAsNotices(tell)
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


class RunningNode:
    """One node from start to stop."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        *,
        key_is_new: bool,
        observer: Observer,
        contributor: AbstractAsyncContextManager[Answerer] | None = None,
    ) -> None:
        """`contributor` answers in the place of a model, and is not trained. Raises LocalError for a swarm that cannot
        be joined.
        """
        self._config = config
        self._identity = identity
        self._key_is_new = key_is_new
        self._observer = observer
        self._contributor = contributor
        self._manifest = load_manifest(config.swarm)
        self._folder = state_folder(Path(config.state), self._manifest, identity.peer_id)
        self._notices: deque[str] = deque(maxlen=_KEPT_NOTICES)
        self._dashboard: Dashboard | None = None
        self._described: dict[str, Any] = {}
        self._connected = trio.Event()
        self._fatal: LocalError | None = None
        self._scope = trio.CancelScope()
        self._started = time.time()

    async def run(self, *, rounds: int | None = None) -> None:
        """Run until `rounds` are played or a signal comes. Raises LocalError for whatever only the operator can
        mend.
        """
        with ExitStack() as stack:
            stack.enter_context(_warnings_told(self._tell))
            stack.enter_context(locked(self._folder))
            database = Database(self._folder.database, SCHEMA)
            stack.callback(database.close)
            stack.callback(self._note_end, database)
            # Before anything that may fail for long: who mends it starts again with a key that has a state by then.
            counters = self._counters(database)
            with self._scope:
                async with trio.open_nursery() as nursery, self._contributor or nullcontext() as contributor:
                    await self._run(nursery, database, counters, rounds, contributor)
                    nursery.cancel_scope.cancel()
            if self._fatal:
                raise self._fatal
            self._observer(Stopped(self._view(database)))

    def _counters(self, database: Database) -> Counters:
        return Counters(
            database,
            self._manifest,
            now=SystemClock().now(),
            key_is_new=self._key_is_new,
            rng=random.SystemRandom(),
            place=GroupKey(self._folder.path),
        )

    async def _run(
        self,
        nursery: trio.Nursery,
        database: Database,
        counters: Counters,
        rounds: int | None,
        contributor: Answerer | None,
    ) -> None:
        anchors = Anchors(database)
        settings = network_settings(self._config, self._manifest, self._identity, anchors.addresses)
        settings.require_usable()
        page = parse_place(self._config.dashboard)
        sandbox = Sandbox()
        learner = Learner(learner_options(self._config, self._manifest, self._folder)) if self._config.train else None
        async with trio.open_nursery() as starting:
            starting.start_soon(nursery.start, sandbox.run)
            if learner:
                starting.start_soon(nursery.start, learner.run)
        await require_catalogue(self._manifest, sandbox)
        config = self._sandboxed_config(sandbox)
        node = Node(
            config=config,
            manifest=self._manifest,
            identity=self._identity,
            counters=counters,
            database=database,
            clock=SystemClock(),
            scorer=sandbox,
            policy=learner,
            rng=random.SystemRandom(),
            on_fatal=self._stop_for,
            contributor=contributor,
            journal=Journal(database),
        )
        nursery.start_soon(self._await_signals, node)
        network = Libp2pNetwork(
            settings,
            self._identity.peer_id,
            node.channels,
            requests=node.requests(lambda: network.peers()),  # noqa: PLW0108 - there is none yet
            admit=node.admits,
            notify=self._notice,
        )
        await nursery.start(network.run)
        if learner and learner.ready.memory:
            self._tell(learner.ready.memory)
        if learner and learner.ready.fallback:
            self._tell(f"checkpoint {learner.ready.fallback}")
        self._tell_of_listening(node)
        facts = Facts(database, {"jail": sandbox.describe()})
        if page:
            await self._serve_page(nursery, facts, database, page)
        self._describe(node, network)
        self._observer(Started(self._view(database)))
        nursery.start_soon(self._refresh, node, network, database)
        nursery.start_soon(self._resend, node, network)
        nursery.start_soon(self._keep_out, node, network)
        nursery.start_soon(self._remember, anchors, network)
        nursery.start_soon(node.broadcast_evidence, network.publish)
        nursery.start_soon(node.pull, network)
        nursery.start_soon(node.listen, network)

        def on_round(report: RoundReport) -> None:
            self._describe(node, network)
            view = self._view(database)
            facts.played(report.step, view)
            self._observer(Played(report, view))

        def on_phase(phase: Phase | None) -> None:
            facts.phase(phase)
            self._observer(Phased(phase))

        def on_contribution(report: ContributionReport) -> None:
            self._describe(node, network)
            self._observer(Shared(report, self._view(database)))

        await node.run(
            network.publish,
            rounds=rounds,
            on_round=on_round,
            on_phase=on_phase,
            on_contribution=on_contribution,
        )

    async def _serve_page(
        self, nursery: trio.Nursery, facts: Facts, database: Database, place: tuple[str, int]
    ) -> None:
        self._dashboard = Dashboard(facts, database, place, self._manifest)
        await nursery.start(self._dashboard.run)
        if ip_address(place[0]).is_unspecified:
            self._tell(
                f"the page listens on every address of this machine, {self._config.dashboard}; to open it from another "
                f"machine, put this machine's address in the place of {urlsplit(self._dashboard.address).hostname}"
            )

    def _sandboxed_config(self, sandbox: Sandbox) -> Config:
        """Without a jail that holds, other peers' text is not scored, so nothing of theirs can be taken."""
        if sandbox.confined or self._config.no_sandbox or not self._config.external:
            return self._config
        self._tell(f"takes nothing from other peers: {sandbox.describe()}; --no-sandbox accepts that")
        return replace(self._config, external=0)

    def _tell_of_listening(self, node: Node) -> None:
        seconds = node.counters.listening_seconds(SystemClock().now())
        if seconds:
            self._tell(
                f"this key may be in use elsewhere (its state is new, or was copied or restored, or the machine "
                f"started anew): for {seconds / 60:.0f} min the node listens and publishes nothing"
            )

    def _describe(self, node: Node, network: Libp2pNetwork) -> None:
        """Store the facts of the session, if one of them has changed. The token of the page is not stored."""
        facts = {
            "started": self._started,
            "peer_id": self._identity.peer_id,
            "swarm": self._manifest.name,
            "network_id": self._manifest.network_id.hex(),
            "addresses": network.addresses,
            "page": self._dashboard.address_without_token if self._dashboard else "",
            "connected": [peer.peer_id for peer in network.peers()],
            "waiting": len(node.pending_queue),
            "shards": {"followed": sorted(node.subscriptions.shards), "all": self._manifest.shards},
            "notices": list(self._notices),
        }
        if facts != self._described:
            node.history.describe_session(facts)
            self._described = facts

    def _view(self, database: Database) -> Overview:
        """What the observer is told: the page's address has the token, because the observer is the operator."""
        view = overview(database)
        page = self._dashboard.address if self._dashboard else ""
        return replace(view, session={**view.session, "page": page})

    async def _refresh(self, node: Node, network: Libp2pNetwork, database: Database) -> None:
        """Keep the facts of the session those of now. A node that does not train has no rounds that would."""
        while True:
            await trio.sleep(_REFRESH_INTERVAL)
            self._describe(node, network)
            self._observer(Refreshed(self._view(database)))

    def _note_end(self, database: Database) -> None:
        """For whoever asks later: a session without `stopped` was killed."""
        history = History(database)
        session = history.session()
        if session.get("started") == self._started:
            history.describe_session({**session, "stopped": time.time()})

    async def _resend(self, node: Node, network: Libp2pNetwork) -> None:
        """Once somebody listens, send again what this key published shortly before a restart."""
        await self._connected.wait()
        await trio.sleep(_RESEND_DELAY)
        await node.resend(network.publish)

    async def _keep_out(self, node: Node, network: Libp2pNetwork) -> None:
        """Close the connections of peers whose standing was lost while they were connected."""
        while True:
            for peer in network.peers():
                if not node.admits(peer.peer_id):
                    await network.disconnect(peer.peer_id)
            await trio.sleep(_KEEP_OUT_INTERVAL)

    async def _remember(self, anchors: Anchors, network: Libp2pNetwork) -> None:
        """Keep in mind whom to dial first after a restart."""
        while True:
            await trio.sleep(_REMEMBER_INTERVAL)
            anchors.note(network.peers())

    async def _await_signals(self, node: Node) -> None:
        """The first signal ends the node in order, the second at once; neither loses anything."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if node.stopping.is_set():
                    self._scope.cancel()
                node.stopping.set()
                self._tell(f"stopping{' after this round' if self._config.train else ''}; once more stops now")

    def _notice(self, notice: NetworkNotice) -> None:
        if isinstance(notice, PeerConnected):
            self._connected.set()
        self._tell(str(notice))

    def _tell(self, text: str) -> None:
        text = printable(text)
        self._notices.append(text)
        self._observer(Noticed(text))

    def _stop_for(self, error: LocalError) -> None:
        self._fatal = error
        self._scope.cancel()
