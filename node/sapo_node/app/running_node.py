"""Runs a node: its parts (`node`) with network, sandbox, learner, page and state on disk."""

import random
import signal
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

import trio

from sapo_node.app.advice import too_long_for
from sapo_node.app.config import Config
from sapo_node.app.curves import start_curves
from sapo_node.app.events import Observer, PageServed, Refreshed, Stopped
from sapo_node.app.exchange import (
    broadcast_evidence,
    disconnect_banned,
    follow_decisions,
    follow_shards,
    note_peers,
    pull,
    resend,
)
from sapo_node.app.feeding import for_trainer, remote_policy, serve_feed
from sapo_node.app.learner_options import learner_options, require_storable
from sapo_node.app.network_settings import network_settings
from sapo_node.app.node import Node, build_node
from sapo_node.app.recipe import recipe_of
from sapo_node.app.reports import Reports
from sapo_node.app.run import run_node
from sapo_node.app.session import Session
from sapo_node.app.state import SCHEMA, locked, state_folder
from sapo_node.app.trained_model import remember, require_same_policy
from sapo_node.app.unused import unused_settings
from sapo_node.learner.client import Learner
from sapo_node.net.anchors import Anchors, KnownPeers
from sapo_node.net.interface import BootstrapUnreachable, NetworkNotice, PeerConnected, ServiceRestarted
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.observability.curves.request import require_installed
from sapo_node.observability.dashboard import Dashboard, parse_place
from sapo_node.observability.dashboard.facts import Facts
from sapo_node.observability.explain import moment
from sapo_node.observability.stored import Role
from sapo_node.processes.clock import SystemClock
from sapo_node.processes.limits import raise_limit
from sapo_node.storage.context import SwarmContext
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database
from sapo_node.storage.keys import Identity
from sapo_node.storage.location import StateLocation
from sapo_node.training.rollout import Answerer
from sapo_node.verification.catalogue import build_examples, require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import LocalError, load_manifest

_KEY, _SANDBOX, _MODEL, _NETWORK = "key", "sandbox", "model", "network"
"""What must be ready before the node has started, as the page shows it."""
_RESEND_DELAY = 3.0
"""Seconds between the first connection and sending recent envelopes again: the gossip mesh forms in this time."""


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
        """`contributor` answers in place of a model. Raises LocalError if there is no such swarm, or if a trainer of
        another program is to answer, too.
        """
        if contributor and config.fed:
            raise LocalError("feed gives the rounds to a trainer of your own; set feed to off where you contribute")
        self._unused = unused_settings(config, contributes=contributor is not None)
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
        settings = network_settings(
            self._config,
            self._swarm.manifest,
            self._swarm.identity,
            anchors=anchors.addresses,
            known=known.addresses,
        )
        settings.require_usable()
        require_installed(self._config.log_to)
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
        start_curves(nursery, node, self._folder, partial(self._session.tell, level="attention"))
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
        sandbox = Sandbox()
        options = learner_options(self._config, manifest, self._folder) if self._config.train else None
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
        if sandbox.confined or self._config.no_sandbox or not self._config.external:
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


def _health(process: Sandbox | Learner) -> str:
    """Say how a child process is, and how often it was replaced."""
    times = process.restarts
    return process.describe() + (f"; started again {times} time{'' if times == 1 else 's'}" if times else "")
