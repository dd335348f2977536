"""py-libp2p as it comes, with sane settings and nothing of this project: what ours is measured against."""

from contextlib import AsyncExitStack
from typing import Any

from libp2p import YAMUX_PROTOCOL_ID, Yamux, new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.relay.circuit_v2.config import RelayConfig, RelayRole
from libp2p.relay.circuit_v2.protocol import PROTOCOL_ID as HOP
from libp2p.relay.circuit_v2.protocol import CircuitV2Protocol
from libp2p.relay.circuit_v2.resources import RelayLimits
from libp2p.relay.circuit_v2.transport import CircuitV2Transport
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.tools.anyio_service import background_trio_service


def stock_host(seed: bytes) -> Any:
    """A host with the key of a seed, over Noise and yamux."""
    keys = create_new_key_pair(seed)
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    return new_host(key_pair=keys, sec_opt={NOISE: noise}, muxer_opt={YAMUX_PROTOCOL_ID: Yamux})


def stock_router(**settings: Any) -> GossipSub:
    """Gossipsub 1.1 with the degrees and the heartbeat of our nodes, and what else is asked for."""
    return GossipSub(
        protocols=[PROTOCOL_ID_V11],
        degree=6,
        degree_low=4,
        degree_high=10,
        heartbeat_interval=1,
        adaptive_gossip_enabled=False,
        spam_protection_enabled=False,
        eclipse_protection_enabled=False,
        **settings,
    )


async def circuits_of(stack: AsyncExitStack, host: Any, *, carries: bool = False) -> CircuitV2Transport:
    """Circuit relay v2 on a running host, which `carries` others or only uses it."""
    limits = RelayLimits(duration=3_600, data=1 << 30, max_circuit_conns=8, max_reservations=8)
    protocol = CircuitV2Protocol(host, limits, allow_hop=carries)
    await stack.enter_async_context(background_trio_service(protocol))
    return CircuitV2Transport(host, protocol, RelayConfig(roles=RelayRole.STOP | RelayRole.CLIENT))


async def reserve(host: Any, circuits: CircuitV2Transport, relay: ID) -> None:
    """Ask a connected relay to carry those who want to reach `host`."""
    assert await circuits._make_reservation(await host.new_stream(relay, [HOP]), relay)
