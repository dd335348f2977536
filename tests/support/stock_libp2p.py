"""py-libp2p as it comes, with sane settings and nothing of this project: what ours is measured against."""

from typing import Any

from libp2p import YAMUX_PROTOCOL_ID, Yamux, new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport


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
