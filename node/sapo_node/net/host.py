"""Builds a libp2p host with our settings, without the automatic actions of the library.

The settings suit py-libp2p 0.8.1: noise and yamux only. Three automatic actions are switched off. The library dials
peers that it heard of. It asks every peer to identify itself, in tasks whose failure ends the process. It accepts
identify reports that it did not ask for.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.host.basic_host import _IdentifyNotifee
from libp2p.identity.identify_push.identify_push import ID_PUSH
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.exceptions import SwarmException
from libp2p.rcmgr.connection_limits import ConnectionLimits
from libp2p.rcmgr.manager import ResourceLimits, ResourceManager
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.transport.tcp.tcp import TCP

from sapo_node.net import inbound, patches
from sapo_node.net.inbound import close_link
from sapo_node.net.settings import NETWORK_DEFENDED, NetworkDefences
from sapo_node.net.yamux import BoundedMuxer

CONNECTIONS = 64
PER_PEER = 3  # connections; two nodes that dial each other at once hold two for a moment


class TrackedTcp(TCP):  # type: ignore[misc]
    """TCP that knows its sockets. The library leaves them open if it fails or has no time to close them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self.listeners: list[Any] = []

    def create_listener(self, handler_function: Any) -> Any:
        self.listeners.append(super().create_listener(handler_function))
        return self.listeners[-1]

    def give_up(self) -> None:
        """Close all sockets. An open listener would take connections from the listener of the next session."""
        for stream in list(self.opened):
            stream.stream.socket.close()
        for listener in self.listeners:
            if listener._nursery is not None:  # noqa: SLF001 - closing its sockets while it runs would end the process
                listener._nursery.cancel_scope.cancel()  # noqa: SLF001

    async def dial(self, maddr: Any) -> Any:
        raw = await super().dial(maddr)
        self.opened.add(raw.stream)
        return raw


patches.apply()


def build_host(
    seed: bytes,
    tcp: TrackedTcp,
    advertised: Callable[[list[Any]], list[Any]],
    defences: NetworkDefences = NETWORK_DEFENDED,
) -> Any:
    """A host that does not run yet.

    `seed` is the 32 secret bytes of our Ed25519 key. `advertised` turns the addresses that the host listens on into the
    addresses that it announces.
    """
    key_pair = create_new_key_pair(seed)
    noise = NoiseTransport(key_pair, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(
        key_pair=key_pair,
        sec_opt={NOISE: noise},  # without it the host also accepts plaintext
        transports=[tcp],
        resource_manager=_limits(defences),
        connection_config=ConnectionConfig(
            max_connections=_most(defences),
            min_connections=defences.reserved_outbound,
            low_watermark=defences.reserved_outbound,
            high_watermark=_most(defences),
            max_connections_per_peer=PER_PEER,
            dial_timeout=inbound.HANDSHAKE_SECONDS,
            inbound_upgrade_timeout=inbound.HANDSHAKE_SECONDS,
            outbound_upgrade_timeout=inbound.HANDSHAKE_SECONDS,
            inbound_stream_protocol_negotiation_timeout=inbound.HANDSHAKE_SECONDS,
            outbound_stream_protocol_negotiation_timeout=inbound.HANDSHAKE_SECONDS,
        ),
        addrs_factory=advertised,
        disable_identify_address_discovery=True,
    )
    _tie_down(host, dials=not defences.only_ours_dial)
    return host


def _most(defences: NetworkDefences) -> int:
    """The connections at which the library refuses. With eviction, `inbound` closes one first, for which there must be
    room.
    """
    return CONNECTIONS * 2 if defences.eviction else CONNECTIONS


def _limits(defences: NetworkDefences) -> ResourceManager:
    most = _most(defences)
    return ResourceManager(
        limits=ResourceLimits(max_connections=most * 2, max_streams=CONNECTIONS * defences.streams),
        connection_limits=ConnectionLimits(
            max_established_inbound=most,
            max_established_outbound=CONNECTIONS,
            max_established_per_peer=PER_PEER,
            max_established_total=most,
        ),
        # These would refuse all peers if one peer misbehaves or the learner needs memory.
        enable_memory_limits=False,
        enable_circuit_breaker=False,
        enable_graceful_degradation=False,
    )


def _tie_down(host: Any, *, dials: bool) -> None:
    """Switch off the automatic actions of the library, except dialling if `dials` is set."""
    swarm = host.get_network()
    swarm.retry_config = RetryConfig(max_retries=0)
    swarm.upgrader.muxer_multistream = BoundedMuxer()
    if not dials:
        swarm.dial_peer = partial(_dial_nobody, swarm)
    swarm.close_peer = partial(_close_peer, swarm)
    swarm.auto_connector.start = swarm.auto_connector.maybe_connect = _do_nothing
    swarm.auto_connector.record_disconnect = _forget  # the library keeps each key that ever left
    for notifee in [found for found in swarm.notifees if isinstance(found, _IdentifyNotifee)]:
        swarm.remove_notifee(notifee)
    host.remove_stream_handler(ID_PUSH)


async def _dial_nobody(_swarm: Any, peer_id: Any) -> Any:
    """Refuse to dial: only `dialer` chooses peers and addresses.

    If the node opens a stream to a peer that has just left, the library would dial the addresses in the peer's signed
    record.
    """
    raise SwarmException(f"not connected to {peer_id}")


async def _close_peer(swarm: Any, peer_id: Any, why: str = "the library closed it") -> None:
    """Close the connections of a peer.

    The library's function takes a while. It then forgets the connections that the peer opened meanwhile, which stay
    open.
    """
    for link in swarm.get_connections(peer_id):
        await close_link(link, why)
        swarm.remove_conn(link)


async def _do_nothing() -> None: ...


def _forget(_peer_id: Any) -> None: ...
