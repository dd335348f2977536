"""Puts a scenario on real libp2p: every honest node listens on an address of its own of this machine, on real time, and
somebody watches what arrives, how late, and whom the nodes are connected with.

What is seen is under `gossip` in the record: of each node its own, and of the run what concerns all.
"""

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from sapo_adversary.simulator.scenario import Scenario
from sapo_node.anchors import Anchors
from sapo_node.database import Database
from sapo_node.keyfile import Identity
from sapo_node.net.addresses import host_of
from sapo_node.net.interface import Admit, Channel, NetworkNotice, Notify, ServiceRestarted, Verdict
from sapo_node.net.judge import content_id
from sapo_node.net.libp2p import Libp2pNetwork, NetworkSettings
from sapo_node.net.service import Service
from sapo_node.state import SCHEMA
from sapo_protocol import LocalError, Manifest, rollouts_topic

if TYPE_CHECKING:
    from trio_typing import TaskStatus

WARM_SECONDS = 8.0
"""After its start a node is owed everything; before, it looks for its peers."""
SETTLE_SECONDS = 15.0
"""What has not arrived by then is lost."""
ATTACKERS_FROM = 200
"""The second number of attackers' IP addresses, at least."""
DOWN_SECONDS = 3.0
"""Between the lives of a node that restarts."""
BEAT_SECONDS = 1.0
"""Between looks at a node: the routers' heartbeat."""


@dataclass(slots=True)
class Seen:
    """What is seen of one honest node."""

    up: list[tuple[float, float]] = field(default_factory=list)
    """From when until when it ran; the last may still run."""
    arrived: dict[bytes, float] = field(default_factory=dict)
    """When it first had each message of others, by content."""
    beats: int = 0
    """While all honest nodes ran."""
    meshed: int = 0
    """Of them, those at which an honest peer was in its mesh."""
    dark: float = 0.0
    """The longest time, in seconds, without one."""
    lit: float = 0.0
    """When there last was one."""
    dials: int = 0
    strange_dials: int = 0
    """Of them, those to addresses at which there is neither an honest node nor an attacker."""
    streams: int = 0
    """The most streams that others than honest nodes held open at one time."""
    stays: Counter[str] = field(default_factory=Counter)
    """The beats at which others than honest nodes were in its mesh, by peer."""
    below: set[str] = field(default_factory=set)
    """Of these peers, those whose score is negative."""
    restarts: int = 0

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return bool(self.up) and self.up[-1][1] == inf

    def covers(self, start: float, end: float) -> bool:
        """Whether the node ran all the time between two moments."""
        return any(since <= start and end <= until for since, until in self.up)


class Loopback:
    """The addresses of all honest nodes, their networks, and what is seen of them."""

    def __init__(self, scenario: Scenario, manifest: Manifest, identities: Sequence[Identity]) -> None:
        self.topic = rollouts_topic(manifest)
        self.places = {each.peer_id: _free_place(number) for number, each in enumerate(identities)}
        self.seen = {each.peer_id: Seen() for each in identities}
        self.published: list[tuple[float, str, bytes]] = []
        """When, by whom, and the content's id."""
        self.ready = trio.Event()
        """Set when the attackers are: honest nodes start then."""
        self._restarts = scenario.restarts
        self._seeds = {each.peer_id: each.seed for each in identities}
        self._network_id = manifest.network_id.hex()
        self._bootstraps = {
            each.peer_id: tuple(self.address_of(other.peer_id) for other in _earlier(scenario, identities, number))
            for number, each in enumerate(identities)
        }
        self._began = self._ended = (0.0, 0.0)
        self.reports: list[Mapping[str, Any]] = []
        """What the attackers say of how it went."""

    def address_of(self, peer: str) -> str:
        """Where an honest node is dialled."""
        host, port = self.places[peer]
        return f"/ip4/{host}/tcp/{port}/p2p/{peer}"

    @property
    def addresses(self) -> list[str]:
        """All honest nodes'."""
        return [self.address_of(peer) for peer in self.places]

    def knows(self, host: str) -> bool:
        """Whether there is an honest node or an attacker at an IP address."""
        return int(host.split(".")[1]) >= ATTACKERS_FROM or any(host == place for place, _ in self.places.values())

    @property
    def victims_bootstraps(self) -> Sequence[str]:
        """Whom the last node, which attacks on one node are made on, is told to dial."""
        return self._bootstraps[list(self.places)[-1]]

    def join(
        self,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        admit: Admit,
        notify: Notify,
        links: Sequence[str] | None = None,
    ) -> "HonestNetwork":
        """The network of an honest node; whom it dials is settled."""
        del links
        settings = NetworkSettings(
            seed=self._seeds[peer_id],
            network_id=self._network_id,
            listen=(self.address_of(peer_id).rpartition("/p2p/")[0],),
            bootstrap=self._bootstraps[peer_id],
            discover=False,
        )

        def live(settings: NetworkSettings) -> WatchedNetwork:
            return WatchedNetwork(self, settings, peer_id, channels, admit=admit, notify=notify)

        restarts = self._restarts if peer_id == list(self.places)[-1] else 0.0
        return HonestNetwork(self, settings, live, restarts)

    def begin(self) -> None:
        """Let the honest nodes start, and count from here."""
        self._began = (trio.current_time(), time.process_time())
        self.ready.set()

    def end(self) -> None:
        """Count no further."""
        self._ended = (trio.current_time(), time.process_time())

    def record(self) -> dict[str, Any]:
        """What concerns all, at the end."""
        seconds, cpu_seconds = (round(end - begin, 2) for begin, end in zip(self._began, self._ended, strict=True))
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "attackers": self.reports,
        }

    def record_of(self, peer: str) -> dict[str, Any]:
        """What was seen of one node, as plain values."""
        seen = self.seen[peer]
        owed = list(self._owed(to=peer))
        lateness = [seen.arrived[key] - sent for sent, _, key in owed if key in seen.arrived]
        in_time = [late for late in lateness if late <= SETTLE_SECONDS]
        heard = [
            self.seen[other].arrived.get(key, inf) - sent <= SETTLE_SECONDS
            for other in self.seen
            for sent, _, key in self._owed(to=other, by=peer)
        ]
        return {
            "received": {"owed": len(owed), "arrived": len(in_time)},
            "sent": {"owed": len(heard), "arrived": sum(heard)},
            "latencies": [round(late, 3) for late in in_time],
            "beats": seen.beats,
            "meshed": seen.meshed,
            "dark": round(seen.dark, 1),
            "dials": seen.dials,
            "strange_dials": seen.strange_dials,
            "streams": seen.streams,
            "stays": sorted(seen.stays.values()),
            "below": len(seen.below),
            "restarts": seen.restarts,
        }

    def _owed(self, *, to: str, by: str = "") -> list[tuple[float, str, bytes]]:
        """The messages that should reach a node: both ends ran long enough before and after."""
        return [
            (sent, author, key)
            for sent, author, key in self.published
            if author != to
            and by in ("", author)
            and all(self.seen[end].covers(sent - WARM_SECONDS, sent + SETTLE_SECONDS) for end in (author, to))
        ]


class HonestNetwork:
    """An honest node's network, over the lives of its process; it starts when the attackers are ready."""

    def __init__(
        self,
        loopback: Loopback,
        settings: NetworkSettings,
        live: "Callable[[NetworkSettings], WatchedNetwork]",
        restarts: float,
    ) -> None:
        """`restarts` is the second after which it starts anew; 0 never."""
        self._loopback = loopback
        self._settings = settings
        self._live = live
        self._restarts = restarts
        self._life = live(settings)
        self._anchors = Anchors(Database(None, SCHEMA))

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """See `Network.run`."""
        await self._loopback.ready.wait()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._life.run)
            task_status.started()
            if not self._restarts:
                await trio.sleep_forever()
            with trio.move_on_after(self._restarts):
                while True:
                    self._anchors.note(self._life.peers())
                    await trio.sleep(BEAT_SECONDS)
            nursery.cancel_scope.cancel()
        await trio.sleep(DOWN_SECONDS)
        self._life = self._live(replace(self._settings, bootstrap=(), anchors=self._anchors.addresses))
        await self._life.run()

    async def publish(self, topic: str, data: bytes) -> None:
        """See `Network.publish`."""
        await self._life.publish(topic, data)


class WatchedNetwork(Libp2pNetwork):
    """One life of it, with somebody who looks."""

    def __init__(
        self,
        loopback: Loopback,
        settings: NetworkSettings,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        admit: Admit,
        notify: Notify,
    ) -> None:
        self._loopback = loopback
        self._seen = loopback.seen[peer_id]
        self._tell = notify
        rollouts = channels[loopback.topic]
        watched = Channel(partial(self._note_arrival, rollouts), rollouts.max_bytes)
        super().__init__(
            settings, peer_id, {**channels, loopback.topic: watched}, admit=admit, notify=self._note_restarts
        )

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """See `Network.run`."""
        async with trio.open_nursery() as nursery:
            await nursery.start(super().run)
            since = self._seen.lit = trio.current_time()
            self._seen.up.append((since, inf))
            try:
                task_status.started()
                await self._look(since + WARM_SECONDS)
            finally:
                self._seen.up[-1] = (since, trio.current_time())

    async def publish(self, topic: str, data: bytes) -> None:
        """See `Network.publish`."""
        if topic == self._loopback.topic:
            self._loopback.published.append((trio.current_time(), self.peer_id, content_id(data)))
        await super().publish(topic, data)

    async def _note_arrival(self, rollouts: Channel, sender: str, data: bytes) -> Verdict:
        self._seen.arrived.setdefault(content_id(data), trio.current_time())
        return await rollouts.handle(sender, data)

    def _note_restarts(self, notice: NetworkNotice) -> None:
        self._seen.restarts += isinstance(notice, ServiceRestarted)
        self._tell(notice)

    def _new_service(self) -> Service:
        service = super()._new_service()
        tcp: Any = service._tcp  # noqa: SLF001 - where all of a node's dials pass

        async def dial(address: Any) -> Any:
            """From the node's own address, as between machines, and counted."""
            self._seen.dials += 1
            self._seen.strange_dials += not self._loopback.knows(host_of(str(address)))
            raw = await tcp.dial_with_source(address, (self._loopback.places[self.peer_id][0], 0))
            tcp.opened.add(raw.stream)
            return raw

        tcp.dial = dial
        return service

    async def _look(self, warm_at: float) -> None:
        """At every beat, until cancelled."""
        seen, honest = self._seen, self._loopback.seen.keys()
        while True:
            await trio.sleep(BEAT_SECONDS)
            service, now = self._service, trio.current_time()
            mesh = service.router.mesh.get(self._loopback.topic, ()) if service else ()
            lit = any(str(peer) in honest for peer in mesh)
            if now > warm_at and all(other.runs for other in self._loopback.seen.values()):
                seen.beats += 1
                seen.meshed += lit
                seen.dark = max(seen.dark, now - max(seen.lit, warm_at))
            if lit:
                seen.lit = now
            if service:
                held = service._streams.items()  # noqa: SLF001 - looked at from outside
                seen.streams = max(seen.streams, sum(count for peer, count in held if peer not in honest))
                seen.stays.update(str(peer) for peer in mesh if str(peer) not in honest)
                seen.below = {peer for peer in seen.stays if service.router.scores.score(now, peer) < 0}


def _earlier(scenario: Scenario, identities: Sequence[Identity], number: int) -> Sequence[Identity]:
    """The nodes that a node is given as its bootstraps: `degree` of those before it, or all."""
    others = identities[:number]
    dice = random.Random(f"{scenario.seed}/{number}")  # noqa: S311 - simulation
    return dice.sample(others, scenario.degree) if 0 < scenario.degree < len(others) else others


def _free_place(number: int) -> tuple[str, int]:
    """An address of this machine in a network (/16) of its own, and a port that is free there.

    Raises LocalError on a system that gives a process 127.0.0.1 alone.
    """
    host = f"127.{10 + number}.{own_network()}"
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, int(probe.getsockname()[1])
    except OSError as error:
        raise LocalError(f"cannot listen on {host} ({error.strerror}): play attacks on the network on Linux") from error


def own_network() -> str:
    """The last half of this process's addresses: runs side by side do not meet."""
    return f"{os.getpid() >> 8 & 255}.{1 + os.getpid() % 254}"
