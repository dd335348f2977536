"""Runs a node: its parts (`node`) with network, sandbox, learner, page and state on disk.

`RunningNode` starts and stops them. `Session` keeps the notices to the operator, and the facts that `status` and the
page show. `Reports` sends what happens to the observer and to the page.
"""

import logging
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from shutil import disk_usage
from urllib.parse import urlsplit

import trio

from sapo_node.app.advice import too_long_for
from sapo_node.app.bootstrap import bootstrap_of
from sapo_node.app.config import AUTO, Config
from sapo_node.app.events import Noticed, Observer, PageServed, Phased, Played, Refreshed, Shared, Started, Stopped
from sapo_node.app.exchange import (
    broadcast_evidence,
    disconnect_banned,
    follow_decisions,
    follow_shards,
    note_peers,
    pull,
    resend,
)
from sapo_node.app.node import Node, build_node
from sapo_node.app.recipe import learner_options, recipe_of, require_storable
from sapo_node.app.run import run_node
from sapo_node.app.state import SCHEMA, StateFolder, locked, state_folder
from sapo_node.app.trained_model import remember, require_same_policy
from sapo_node.contributors.rounds import answer_seconds
from sapo_node.feed.policy import RemotePolicy
from sapo_node.feed.server import FeedServer
from sapo_node.groups.record import ContributionReport
from sapo_node.learner.client import Learner
from sapo_node.net.address_book import Anchors, KnownPeers
from sapo_node.net.interface import BootstrapUnreachable, Network, NetworkNotice, PeerConnected, ServiceRestarted
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.observability import curves
from sapo_node.observability.dashboard import Dashboard, parse_place
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.explain import moment
from sapo_node.observability.history import History
from sapo_node.observability.overview import Overview, overview
from sapo_node.observability.stored import Level, Notice, Role, SessionFacts
from sapo_node.processes.clock import SystemClock
from sapo_node.processes.limits import raise_limit
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.storage.location import StateLocation
from sapo_node.training.batch_log import BatchLog, last_counted
from sapo_node.training.rollout import Answerer
from sapo_node.training.round import Phase, RoundReport
from sapo_node.verification.catalogue import build_examples, require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, Manifest, load_manifest
from sapo_protocol.printable import printable

_KEY, _SANDBOX, _MODEL, _NETWORK = "key", "sandbox", "model", "network"
"""The parts that must be ready before the node has started, by the names that the page shows."""
_RESEND_DELAY = 3.0
"""Seconds between the first connection and sending recent envelopes again: the gossip mesh forms in this time."""
_REFRESH_INTERVAL = 3.0
"""Seconds between two updates of the counts and of the session facts."""
_EPOCH_INTERVAL = 1.0
"""Seconds between two looks at the epoch while a node waits for a trainer of another program."""
_KEPT_NOTICES = 5
"""The newest notices of each level that `status` and the page show."""
LEAST_FREE = 256 * 2**20
"""Bytes on the disk of the state below which a notice tells the operator to make room."""


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
        """`contributor` answers in place of a model. Raises LocalError if there is no such swarm, or if the
        configuration also names a trainer of another program.
        """
        if contributor and config.fed:
            raise LocalError("feed gives the rounds to a trainer of your own; set feed to off if you contribute")
        self._unused = config.unused(contributes=contributor is not None)
        self._config = for_trainer(config) if config.fed else config
        self._key_is_new = key_is_new
        self._observer = observer
        self._contributor = contributor
        self._swarm = SwarmContext(load_manifest(config.swarm), SystemClock(), identity, random.SystemRandom())
        self._folder = state_folder(config.states, self._swarm.manifest, identity.peer_id)
        role: Role = "contributes" if contributor else "feeds" if config.fed else "trains" if config.train else "relays"
        self._session = Session(observer, role, self._folder.path)
        self._connected = trio.Event()
        self._fatal: LocalError | None = None
        self._scope = trio.CancelScope()

    async def run(self, *, rounds: int | None = None) -> None:
        """Run until `rounds` rounds are played or a signal comes.

        Raises LocalError for an error that only the operator can fix.
        """
        with ExitStack() as stack:
            stack.enter_context(self._session.warnings_as_notices())
            stack.enter_context(locked(self._folder))
            if low := raise_limit():
                self._session.tell(low, "attention")
            database = Database(self._folder.database, SCHEMA)
            stack.callback(database.close)
            stack.push(partial(self._note_end, database))
            # Make the counters first. If a later step fails, the key has a state when the operator starts again.
            counters = self._counters(database)
            with self._scope:
                async with trio.open_nursery() as nursery, self._contributor or nullcontext() as contributor:
                    await self._run(nursery, database, counters, rounds, contributor)
                    nursery.cancel_scope.cancel()
            if self._fatal:
                raise self._fatal
            self._session.note_end(database, "")
            self._observer(Stopped(self._session.view(database)))

    def _counters(self, database: Database) -> Counters:
        return Counters(
            database,
            self._swarm.manifest,
            now=self._swarm.clock.now(),
            steady=self._swarm.clock.steady(),
            key_is_new=self._key_is_new,
            rng=self._swarm.rng,
            location=StateLocation(self._folder.path),
        )

    async def _run(
        self,
        nursery: trio.Nursery,
        database: Database,
        counters: Counters,
        rounds: int | None,
        contributor: Answerer | None,
    ) -> None:
        anchors, known = Anchors(database), KnownPeers(database)
        settings = NetworkSettings(
            seed=self._swarm.identity.seed,
            network_id=self._swarm.manifest.network_id.hex(),
            listen=self._config.listen,
            announce=self._config.announce,
            bootstrap=bootstrap_of(self._config.bootstrap, self._swarm.manifest),
            anchors=anchors.addresses,
            known=known.peers,
            discover=self._config.network == AUTO,
            map_port=self._config.network == AUTO,
        )
        settings.require_usable()
        curves.require_installed(self._config.log_to)
        require_storable(self._config, self._swarm.manifest.completions)
        if self._config.train:
            require_same_policy(database, self._config, self._folder.checkpoints)
        facts = self._facts(database, contributes=contributor is not None)
        if page := parse_place(self._config.dashboard):
            await self._serve_page(nursery, facts, database, page)
        self._session.describe_start(database, self._swarm)
        sandbox, learner = await self._start_processes(nursery, facts)
        if learner:
            remember(database, self._config, learner.ready)
        remote = remote_policy(self._config, self._swarm.manifest, database) if self._config.fed else None
        node = build_node(
            self._sandboxed_config(sandbox),
            self._swarm,
            database=database,
            counters=counters,
            scorer=sandbox,
            policy=learner or remote,
            contributor=contributor,
            examples=await build_examples(self._swarm.manifest, sandbox, recipe_of(self._config).examples),
            standing=self._session.standing,
            on_fatal=self._stop_for,
        )
        if self._config.log_to:
            self._start_curves(nursery, node)
        nursery.start_soon(self._await_signals, node)
        network = self._network(node, settings)
        await nursery.start(network.run)
        facts.ready(_NETWORK)
        self._tell_of_start(node, learner)
        if remote:
            await serve_feed(nursery, node, remote, self._folder, self._session.tell)
        reports = Reports(node, network, database, self._session, facts, self._observer)
        reports.started()
        nursery.start_soon(reports.refresh)
        nursery.start_soon(self._resend, node, network)
        nursery.start_soon(follow_decisions, node)
        nursery.start_soon(disconnect_banned, node, network)
        nursery.start_soon(note_peers, anchors, known, network)
        nursery.start_soon(broadcast_evidence, node, network.publish)
        nursery.start_soon(pull, node, network)
        nursery.start_soon(follow_shards, node, network)
        await run_node(
            node,
            network.publish,
            rounds=rounds,
            on_round=reports.played,
            on_phase=reports.phase,
            on_contribution=reports.contributed,
        )

    def _facts(self, database: Database, *, contributes: bool) -> Facts:
        parts = [_KEY, _SANDBOX, *([_MODEL] if self._config.train else []), _NETWORK]
        plays = self._config.train or self._config.fed
        rests = "between rounds" if plays else "answers prompts of the swarm" if contributes else "verifies and relays"
        facts = Facts(database, parts, rests=rests)
        facts.ready(_KEY)
        return facts

    async def _start_processes(self, nursery: trio.Nursery, facts: Facts) -> tuple[Sandbox, Learner | None]:
        """Start the sandbox and, if the node trains, the learner. Raises LocalError if a task cannot be built here."""
        manifest = self._swarm.manifest
        sandbox = Sandbox(manifest.tasks, self._config.files_of(manifest.tasks))
        options = learner_options(self._config, manifest, self._folder.checkpoints) if self._config.train else None
        learner = Learner(options, self._session.standing) if options else None

        async def start(part: str, process: Sandbox | Learner) -> None:
            await nursery.start(process.run)
            facts.ready(part, partial(_health, process))

        async with trio.open_nursery() as starting:
            starting.start_soon(start, _SANDBOX, sandbox)
            if learner:
                starting.start_soon(start, _MODEL, learner)
        await require_catalogue(manifest, sandbox)
        return sandbox, learner

    def _network(self, node: Node, settings: NetworkSettings) -> Libp2pNetwork:
        network = Libp2pNetwork(
            settings,
            node.peer_id,
            node.channels,
            requests=node.requests(lambda: network.peers()),  # noqa: PLW0108 - `network` does not exist yet
            admit=node.admits,
            notify=partial(self._notice, node),
        )
        return network

    def _start_curves(self, nursery: trio.Nursery, node: Node) -> None:
        """Write the rounds and evaluations that follow those of now to the targets of `log_to`."""
        request = curves.Request(
            targets=self._config.log_to,
            database=str(self._folder.database),
            folder=str(self._folder.path / "curves"),
            project=f"sapo-{self._swarm.manifest.name}",
            name=f"{self._config.model_label.replace('/', '-')}-{node.peer_id[-8:]}",
            round=max([0, *(each["step"] for each in node.history.rounds(1))]),
            evaluation=max([-1, *(each["step"] for each in node.history.evaluations())]),
        )
        nursery.start_soon(curves.write_curves, request, partial(self._session.tell, level="attention"))

    async def _serve_page(
        self, nursery: trio.Nursery, facts: Facts, database: Database, place: tuple[str, int]
    ) -> None:
        self._session.dashboard = dashboard = Dashboard(
            facts, database, place, self._swarm.manifest, self._folder.page_token
        )
        await nursery.start(dashboard.run)
        self._observer(PageServed(dashboard.address))
        if ip_address(place[0]).is_unspecified:
            self._session.tell(
                f"the page listens on every address of this machine, {self._config.dashboard}; to open it from another "
                f"machine, write this machine's address instead of {urlsplit(dashboard.address).hostname}"
            )

    def _sandboxed_config(self, sandbox: Sandbox) -> Config:
        """Return the configuration. If there is no sandbox to score peers' text, set J to 0."""
        if sandbox.confined or not self._config.sandbox or not self._config.external:
            return self._config
        self._session.standing["sandbox"] = sandbox.describe()
        self._session.tell(
            f"the node trains on no external groups: {sandbox.describe()}; --no-sandbox scores them without a sandbox",
            "attention",
        )
        return replace(self._config, external=0)

    def _tell_of_start(self, node: Node, learner: Learner | None) -> None:
        if self._unused:
            self._session.tell(f"this node does not train; these settings have no effect: {', '.join(self._unused)}")
        manifest = self._swarm.manifest
        if node.counters.epoch(self._swarm.clock.now()) < 0:
            self._session.tell(f"the swarm begins {moment(manifest.genesis)}; the node plays no round before")
        if manifest.bootstrap and not self._config.bootstrap:
            self._session.tell(f"dialling the peers that the manifest names: {', '.join(manifest.bootstrap)}")
        if too_long := too_long_for(self._config, manifest.max_completion_bytes):
            self._session.tell(too_long, "attention")
        if learner and learner.ready.memory:
            self._session.tell(learner.ready.memory)
        if learner and learner.ready.fallback:
            self._session.tell(f"checkpoint {learner.ready.fallback}")
        seconds = node.counters.listening_seconds(self._swarm.clock.now(), self._swarm.clock.steady())
        if seconds:
            self._session.tell(
                f"this key may be in use elsewhere (its state is new, was copied or restored, the machine restarted, "
                f"or another node used it): for {seconds / 60:.0f} min the node listens and publishes nothing"
            )

    async def _resend(self, node: Node, network: Libp2pNetwork) -> None:
        """Once a peer is connected, publish again what this key published in this epoch and the last."""
        await self._connected.wait()
        await trio.sleep(_RESEND_DELAY)
        await resend(node, network.publish)

    async def _await_signals(self, node: Node) -> None:
        """Stop the node after its round at the first signal, and at once at the second. Neither loses state."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if node.stopping.is_set() or self._config.fed:  # a round of a trainer may take as long as it likes
                    self._scope.cancel()
                if node.stopping.is_set():
                    continue
                node.stopping.set()
                how = f"{' after this round' if self._config.train else ''}; a second Ctrl-C stops at once"
                self._session.standing["stopping"] = how
                self._session.tell(f"stopping{how}")
                self._observer(Refreshed(partial(self._session.view, node.database)))

    def _notice(self, node: Node, notice: NetworkNotice) -> None:
        if isinstance(notice, PeerConnected):
            self._connected.set()
        node.notice(notice)
        needs_person = isinstance(notice, BootstrapUnreachable | ServiceRestarted)
        self._session.tell(str(notice), "attention" if needs_person else "info")

    def _note_end(
        self, database: Database, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        del kind, trace
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error:
            failure = str(error) or type(error).__name__
            self._session.note_end(database, failure if isinstance(error, Exception) else "")

    def _stop_for(self, error: LocalError) -> None:
        self._fatal = error
        self._scope.cancel()


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
        """The present problems, and the things awaited, each by the part of the node that reports it."""
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
        """Return the facts that are known before the node has started. The database must not hold the token of the
        page, so they lack it.
        """
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
        """Report that the node is ready."""
        self.session.describe(self.node, self.network)
        self.observer(Started(self.session.view(self.database)))

    def phase(self, phase: Phase | None) -> None:
        """Report that a phase of a round begins; None if the round ends."""
        self.facts.phase(phase)
        self.observer(Phased(phase))

    def played(self, report: RoundReport) -> None:
        """Report that a round has ended."""
        self.session.describe(self.node, self.network)
        view = self.session.view(self.database)
        self.facts.played(report.step, view)
        self.observer(Played(report, view))

    def contributed(self, report: ContributionReport) -> None:
        """Report that the completions of a contributor were shared."""
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


def _health(process: Sandbox | Learner) -> str:
    """Return one line about a child process: its state, and how often it was restarted."""
    times = process.restarts
    return process.describe() + (f"; started again {times} time{'' if times == 1 else 's'}" if times else "")


def for_trainer(config: Config) -> Config:
    """Return the settings of a node that a trainer of another program feeds.

    The trainer evaluates its weights itself, and each of its reports may name a new checkpoint. The label that peers
    see must not name the packaged policy.
    """
    model = "trainer" if config.model == "seed" else config.model
    return replace(config, eval_every=0, checkpoint_every=1, model=model)


def remote_policy(config: Config, manifest: Manifest, database: Database) -> RemotePolicy:
    """Return the policy of a node whose steps a trainer of another program takes."""
    log = BatchLog(database)
    return RemotePolicy(
        step=last_counted(database),
        newest=lambda: log.newest,
        filters=config.filters,
        max_bytes=manifest.max_completion_bytes,
        answer_seconds=answer_seconds(manifest),
    )


async def serve_feed(
    nursery: trio.Nursery, node: Node, policy: RemotePolicy, folder: StateFolder, tell: Callable[[str], None]
) -> None:
    """Start the service for the trainer. Raises LocalError if its address cannot be used."""
    place = parse_place(node.config.feed, "feed")
    if place is None:
        raise LocalError("feed is off")
    server = FeedServer(
        policy,
        place,
        folder.path,
        completions=node.swarm.manifest.completions,
        max_tokens=recipe_of(node.config).max_tokens,
    )
    await nursery.start(server.run)
    nursery.start_soon(_stay_current, node)
    tell(f"a trainer finds this node through {server.file}")


async def _stay_current(node: Node) -> None:
    """Enter each epoch and write the counts, also while the node waits for the trainer."""
    while True:
        node.epochs.enter_current()
        node.tally.count()
        await trio.sleep(_EPOCH_INTERVAL)
