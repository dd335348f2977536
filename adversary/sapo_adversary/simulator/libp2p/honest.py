"""The network of one honest node on loopback, over the restarts of its process, and what is measured in it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from sapo_adversary.simulator.libp2p.watch import WARM_SECONDS, Watch
from sapo_node.app.state import SCHEMA
from sapo_node.gossip.seen import content_id
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.address_book import Anchors
from sapo_node.net.addresses import host_of
from sapo_node.net.host import Session
from sapo_node.net.interface import (
    Admit,
    Channel,
    NetworkNotice,
    Notify,
    PeerInfo,
    Requests,
    ServiceRestarted,
)
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.storage.database import Database

if TYPE_CHECKING:
    from trio_typing import TaskStatus

DOWN_SECONDS = 3.0
"""Between the lives of a node that restarts."""
BEAT_SECONDS = 1.0
"""Between looks at a node: the routers' heartbeat."""


class HonestNetwork:
    """An honest node's network, over the lives of its process; it starts when the attackers are ready."""

    def __init__(
        self,
        ready: trio.Event,
        settings: NetworkSettings,
        live: "Callable[[NetworkSettings], WatchedNetwork]",
        restarts: float,
    ) -> None:
        """`ready` is set when the attackers are; `restarts` is the second after which it starts anew, 0 never."""
        self._ready = ready
        self._settings = settings
        self._live = live
        self._restarts = restarts
        self._life = live(settings)
        self._anchors = Anchors(Database(None, SCHEMA))

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """See `Network.run`."""
        await self._ready.wait()
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

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        """See `Network.ask`."""
        return await self._life.ask(peer_id, request)

    def try_address(self, by: str, peer_id: str, address: str) -> None:
        """See `Network.try_address`."""
        self._life.try_address(by, peer_id, address)

    def peers(self) -> tuple[PeerInfo, ...]:
        """See `Network.peers`."""
        return self._life.peers()


class WatchedNetwork(Libp2pNetwork):
    """The network of one life of the process, which reports to a `Watch`."""

    def __init__(
        self,
        settings: NetworkSettings,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        topic: str,
        watch: Watch,
        knows: Callable[[str], bool],
        requests: Requests | None,
        admit: Admit,
        notify: Notify,
    ) -> None:
        """`topic` is that of the rollouts that are followed; `knows` says of an IP address whether there is an honest
        node or an attacker.
        """
        self._topic = topic
        self._watch = watch
        self._knows = knows
        self._host = host_of(settings.listen[0])
        self._seen = watch.seen[peer_id]
        self._tell = notify
        rollouts = channels[topic]
        watched = Channel(partial(self._note_arrival, rollouts), rollouts.max_bytes)
        super().__init__(
            settings,
            peer_id,
            {**channels, topic: watched},
            requests=requests,
            admit=admit,
            notify=self._note_restarts,
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
        if topic == self._topic:
            self._watch.published.append((trio.current_time(), self.peer_id, content_id(data)))
        await super().publish(topic, data)

    async def _note_arrival(self, rollouts: Channel, sender: str, data: bytes) -> Verdict:
        self._seen.arrived.setdefault(content_id(data), trio.current_time())
        return await rollouts.handle(sender, data)

    def _note_restarts(self, notice: NetworkNotice) -> None:
        self._seen.restarts += isinstance(notice, ServiceRestarted)
        self._tell(notice)

    def _new_session(self) -> Session:
        session = super()._new_session()
        tcp: Any = session._tcp  # noqa: SLF001 - where all of a node's dials pass

        async def dial(address: Any) -> Any:
            """From the node's own address, as between machines, and counted."""
            self._seen.dials += 1
            self._seen.strange_dials += not self._knows(host_of(str(address)))
            raw = await tcp.dial_with_source(address, (self._host, 0))
            tcp.opened.add(raw.stream)
            return raw

        tcp.dial = dial
        return session

    async def _look(self, warm_at: float) -> None:
        """Once per heartbeat, until cancelled."""
        seen, honest = self._seen, self._watch.seen.keys()
        while True:
            await trio.sleep(BEAT_SECONDS)
            service, now = self._session, trio.current_time()
            mesh = service.machine.topics[self._topic.encode()].mesh if service else ()
            lit = any(peer in honest for peer in mesh)
            if now > warm_at and self._watch.complete:
                seen.heartbeats += 1
                seen.meshed += lit
                seen.dark = max(seen.dark, now - max(seen.lit, warm_at))
            if lit:
                seen.lit = now
            if service:
                held = service.inbound.streams.items()
                seen.streams = max(seen.streams, sum(count for peer, count in held if peer not in honest))
                seen.stays.update(peer for peer in mesh if peer not in honest)
