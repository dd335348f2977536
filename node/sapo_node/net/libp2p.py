"""The libp2p network: gossip under a supervisor that restarts it after any error.

Any node can be a bootstrap peer. A node that starts without --bootstrap listens and prints its address; other nodes
pass this address as --bootstrap. Nodes on one LAN or one machine find each other by mDNS, without --bootstrap.
"""

import hashlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from sapo_node.gossip.seen import Seen
from sapo_node.gossip.verdict import Verdict
from sapo_node.net import addresses, pcp, port_mapping
from sapo_node.net.dialer import Dialer
from sapo_node.net.discovery import Beacon, discover, seek
from sapo_node.net.feelers import Announced, Feelers
from sapo_node.net.gossip_streams import Gossip
from sapo_node.net.host import Session
from sapo_node.net.interface import (
    CIRCUIT,
    TARGET_PEERS,
    Admit,
    AskFailed,
    Channel,
    Handle,
    KnownPeer,
    Malformed,
    Notify,
    NotRunningError,
    OtherSwarm,
    PeerConnected,
    PeerGone,
    PeerInfo,
    PortMapped,
    Reachability,
    Requests,
    ServiceRestarted,
)
from sapo_node.net.settings import NetworkSettings
from sapo_node.processes.bounded import Bounded
from sapo_protocol.errors import LocalError
from sapo_protocol.keys import public_key_of

if TYPE_CHECKING:
    from trio_typing import TaskStatus

log = logging.getLogger(__name__)

FIRST_RESTART, LONGEST_RESTART = 0.2, 30.0  # seconds
STEADY_SECONDS = 60.0  # after a session of this length the back-off begins at FIRST_RESTART again
STOP_SECONDS = 4.0
OFFENDERS = 1024  # peers whose malformed data is counted


class Libp2pNetwork:
    """`Network` over libp2p."""

    def __init__(
        self,
        settings: NetworkSettings,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        requests: Requests | None = None,
        admit: Admit,
        notify: Notify,
    ) -> None:
        """`channels` by topic. Without `requests` the network sends and answers none. Raises AddressError."""
        self.peer_id = peer_id
        self.addresses: tuple[str, ...] = ()
        self._settings = settings
        self._listen = addresses.listening(settings.listen)
        self._announce = tuple(addresses.parse_announce(text) for text in settings.announce)
        self._requests = requests
        self._admit = admit
        self._notify = notify
        self._channels = {
            topic: replace(channel, handle=partial(self._handle, channel.handle)) for topic, channel in channels.items()
        }
        self._seen_messages = Seen()
        self._shared = frozenset(topic for topic, channel in channels.items() if channel.everybodys)
        self._part = self._parts = frozenset(channels) - self._shared
        self._session: Session | None = None
        self._dialer = Dialer(
            self._dial,
            self._linked,
            below_target=self._below_target,
            admit=self._admits,
            notify=notify,
            defences=settings.defences,
        )
        self._seeds = [text for text in settings.bootstrap if addresses.seed_of(text)]
        for text in settings.bootstrap:
            if text in self._seeds:
                continue
            bootstrap, address = addresses.parse_dial(text)
            if bootstrap != peer_id:
                self._dialer.want(bootstrap, [address], bootstrap=True)
        for text in settings.anchors if settings.defences.anchors else ():
            anchor, address = addresses.parse_dial(text)
            self._dialer.want(anchor, [address], anchor=True)
        for known in settings.known if settings.defences.anchors else ():
            self._dialer.remember(known)
        self._feelers = Feelers(self._check, self._announced, self._dialer.felt)
        self._up = trio.Event()  # set while a session runs
        self._stop = trio.Event()
        self._stop.set()
        self._members: dict[str, float] = {}
        self._brought: Counter[str] = Counter()
        self._foreign: set[str] = set()
        self._offences: Bounded[str, int] = Bounded(OFFENDERS)

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """See `Network.run`. Raises PortBusyError if the port is taken at the first start."""
        addresses.check_port_free(self._listen)
        self._stop = stop = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(set_when_cancelled, stop)
                # Shielded, so that the session closes its connections before the library is cancelled.
                with trio.CancelScope(shield=True):
                    await supervise(
                        partial(self._run_session, stop), stop, started=task_status.started, notify=self._notify
                    )
                nursery.cancel_scope.cancel()
        finally:
            stop.set()
            self._up.set()  # wakes the tasks that wait to publish, which then fail

    async def _run_session(self, stop: trio.Event, ready: Callable[[], None]) -> None:
        """Run one session, from a new host to its end."""
        self._session = session = self._new_session()  # before it listens: peers may tell their topics at once
        try:
            async with trio.open_nursery() as nursery:

                def up() -> None:
                    self._listen = session.bound  # the next session takes the same ports
                    self.addresses = session.advertised
                    nursery.start_soon(self._seek_peers, session, stop)
                    nursery.start_soon(session.hole_punching.run)
                    self._up.set()
                    ready()

                nursery.start_soon(cancel_late, stop, nursery.cancel_scope)
                await session.run(up, stop)
                nursery.cancel_scope.cancel()
        finally:
            self._up = trio.Event()
            self._session = None
            for peer_id in sorted(self._members):
                self._gone(peer_id, "the network service stopped")
            self._brought.clear()

    def _new_session(self) -> Session:
        gossip = Gossip(
            channels=self._channels,
            admit=self._admits,
            offended=self._offended,
            joined=self._joined,
            foreign=self._follows_other,
            defences=self._settings.defences,
        )
        return Session(
            self._settings.seed,
            gossip,
            listen=self._listen,
            announce=self._announce,
            seen=self._seen_messages,
            followed=self._part | self._shared,
            requests=self._requests,
            linked=self._dialer.wake,
            gone=self._gone,
            brought=self._brought.__getitem__,
        )

    async def _seek_peers(self, session: Session, stop: trio.Event) -> None:
        """Dial peers, and let peers dial this node, until `stop` is set."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._map_port, session)
            nursery.start_soon(self._dialer.run)
            nursery.start_soon(self._feelers.run)
            for text in self._seeds:
                nursery.start_soon(seek, text, partial(self._dialer.want, source=text), self._notify)
            if self._settings.discover:
                bare = tuple(text.rpartition("/p2p/")[0] for text in self.addresses)
                beacon = Beacon(self._settings.network_id, self.peer_id, bare)
                nursery.start_soon(discover, beacon, partial(self._dialer.want, source="mdns"))
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _map_port(self, session: Session) -> None:
        """Have the router forward the listening port, until cancelled."""
        port = port_mapping.port_to_map(session.bound)
        if not self._settings.map_port or self._announce or port is None:
            return

        def changed(mapping: pcp.Mapping | None) -> None:
            outer = f"/ip4/{mapping.host}/tcp/{mapping.port}" if mapping else ""
            session.announce_mapped(outer)
            self.addresses = session.advertised
            self._notify(PortMapped(outer, mapping.by if mapping else ""))

        nonce = hashlib.blake2b(b"port mapping", key=self._settings.seed, digest_size=pcp.NONCE_BYTES).digest()
        await port_mapping.keep_mapping(port_mapping.ways_here(nonce), port, changed)

    async def publish(self, topic: str, data: bytes) -> None:
        self._channels[topic].require_fits(data)
        if not self._stop.is_set():
            await self._up.wait()
        if self._session is None:
            raise NotRunningError("the network does not run: start it before publishing")
        await self._session.publish(topic, data)

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        if self._session is None:
            raise AskFailed("the network does not run")
        return await self._session.ask(peer_id, request)

    def try_address(self, by: str, peer_id: str, address: str) -> None:
        if self._session is not None and address == CIRCUIT:
            self._session.hole_punching.meet(by, peer_id)
            return
        sources = self._session.sources(by) if self._session is not None else []
        if any(addresses.may_be_followed(address, source) for source in sources):
            self._dialer.want(peer_id, [address], by=by, source=addresses.network_of(sources[0]))

    def peers(self) -> tuple[PeerInfo, ...]:
        session = self._session
        if session is None:
            return ()
        return tuple(
            PeerInfo(
                peer,
                self._proven(session, peer),
                outbound=session.outbound(peer),
                connected_at=since,
                follows=session.followed_by(peer),
                brought=self._brought[peer],
                reserved=session.relay.has_guest(peer),
            )
            for peer, since in sorted(self._members.items())
        )

    def _proven(self, session: Session, peer_id: str) -> tuple[str, ...]:
        """The IP addresses and ports at which a connected peer answered this node."""
        if not self._settings.defences.records_checked:
            return session.recorded(peer_id)
        return addresses.places_of([self._dialer.answered(peer_id)], session.sources(peer_id))[0]

    def _announced(self, peer_id: str) -> Announced:
        """Where a connected peer says that it can be dialled."""
        if self._session is None or not (sources := self._session.sources(peer_id)):
            return Announced((), claimed=False, network="")
        places, claimed = addresses.places_of(self._session.recorded(peer_id), sources)
        return Announced(places, claimed, addresses.network_of(sources[0]))

    async def follow(self, topics: Collection[str]) -> None:
        self._part = frozenset(topics)
        if not self._stop.is_set():
            await self._up.wait()  # a session that is starting would miss the change
        if self._session is None:
            return
        self._session.follow(self._part | self._shared)
        for peer_id in self._dialer.seek_anew(self._shares_topic):
            await self.disconnect(peer_id, "this node now follows other topics, and dialled too many peers")

    async def reachability(self, peer_id: str) -> Reachability:
        """Ask a connected peer how it sees this node. Raises AskFailed."""
        try:
            if self._session is not None:
                return await self._session.reachability(peer_id)
        except Exception as error:
            raise AskFailed(f"{peer_id} did not say how it sees this node: {first_cause(error)}") from error
        raise AskFailed("the network does not run")

    def answered(self) -> tuple[KnownPeer, ...]:
        return self._dialer.all_answered()

    def _shares_topic(self, peer_id: str) -> bool:
        """Return whether a peer follows one of our topics that not all peers follow."""
        return self._session is not None and not self._part.isdisjoint(self._session.followed_by(peer_id))

    def _below_target(self) -> bool:
        """Return whether we do not follow all topics, and one that we follow has fewer than TARGET_PEERS peers."""
        session = self._session
        if session is None or self._part == self._parts:
            return False
        return any(session.followers(topic) < TARGET_PEERS for topic in self._part)

    async def disconnect(self, peer_id: str, why: str) -> None:
        if self._session is not None:
            try:
                await self._session.disconnect(peer_id, why)
            except Exception as error:  # noqa: BLE001 - the connection is being given up
                log.debug("disconnecting %s failed: %r", peer_id, error)

    async def _handle(self, handle: Handle, sender: str, data: bytes) -> Verdict:
        verdict = await handle(sender, data)
        if verdict is Verdict.ACCEPT and self._is_here(sender):
            self._brought[sender] += 1
        return verdict

    def _is_here(self, peer_id: str) -> bool:
        """Return whether a peer is connected. It need not follow a topic of ours."""
        return peer_id in self._members or (self._session is not None and self._session.is_linked(peer_id))

    async def _dial(self, peer_id: str, address: str) -> None:
        if self._session is not None:
            await self._session.dial(peer_id, address)

    async def _check(self, peer_id: str, address: str) -> None:
        if self._session is not None:
            await self._session.check(peer_id, address)

    def _linked(self) -> frozenset[str]:
        return self._session.linked() if self._session is not None else frozenset()

    def _admits(self, peer_id: str) -> bool:
        """Return whether a peer may connect.

        Its key is an Ed25519 key and not ours, the node admits it, and it did not flood lately.
        """
        try:
            public_key_of(peer_id)
        except LocalError:
            return False
        flooded = self._session is not None and self._session.refuses(peer_id)
        return peer_id != self.peer_id and self._admit(peer_id) and not flooded

    def _joined(self, peer_id: str) -> None:
        if peer_id in self._members or self._session is None:
            return
        self._members[peer_id] = trio.current_time()
        if not self._settings.defences.records_checked:
            self._dialer.want(peer_id, self._session.recorded(peer_id))
        if not self._session.outbound(peer_id):
            self._feelers.met(peer_id)
        block = "" if self._dialer.is_bootstrap(peer_id) else self._session.block(peer_id)
        self._notify(PeerConnected(peer_id, block))

    def _gone(self, peer_id: str, why: str) -> None:
        self._foreign.discard(peer_id)
        self._feelers.left(peer_id)
        self._brought.pop(peer_id, None)
        if self._members.pop(peer_id, None) is not None:
            self._notify(PeerGone(peer_id, why))
        self._dialer.lost(peer_id)

    def _follows_other(self, peer_id: str, network_id: str) -> None:
        if network_id != self._settings.network_id and peer_id not in self._foreign:
            self._foreign.add(peer_id)
            self._notify(OtherSwarm(peer_id, network_id))

    def _offended(self, peer_id: str, cause: str) -> None:
        self._dialer.forget(peer_id)
        count = self._offences.get(peer_id, 0) + 1
        self._offences[peer_id] = count
        if count & (count - 1) == 0:  # only counts 1, 2, 4, 8, ..., so that a flood causes few notices
            self._notify(Malformed(peer_id, count, cause))


async def supervise(
    session: Callable[[Callable[[], None]], Awaitable[None]],
    stop: trio.Event,
    *,
    started: Callable[[], None],
    notify: Notify,
) -> None:
    """Run `session(ready)` until `stop` is set, with a back-off after each session that failed.

    `started` is called once, when the first session is ready. Each restart is reported to `notify`.
    """
    delay = FIRST_RESTART
    is_started = False

    def ready() -> None:
        nonlocal is_started
        if not is_started:
            is_started = True
            started()

    while not stop.is_set():
        since = trio.current_time()
        try:
            await session(ready)
        except Exception as error:
            if stop.is_set():
                log.debug("the network service ended with %r", error)
                return
            if trio.current_time() - since > STEADY_SECONDS:
                delay = FIRST_RESTART
            log.debug("the network service failed", exc_info=error)
            notify(ServiceRestarted(first_cause(error), delay))
            with trio.move_on_after(delay):
                await stop.wait()
            delay = min(delay * random.uniform(1.5, 2.5), LONGEST_RESTART)  # noqa: S311 - jitter


async def set_when_cancelled(stop: trio.Event) -> None:
    """Set `stop` when the task is cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        stop.set()


async def cancel_late(stop: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel `scope` STOP_SECONDS after `stop` is set, because the library may hang while it closes."""
    await stop.wait()
    await trio.sleep(STOP_SECONDS)
    scope.cancel()


def first_cause(error: BaseException) -> str:
    """One line about the first exception in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
