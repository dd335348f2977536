"""py-libp2p by itself, with the settings that it needs to be fast: `bare_node.py SWARM`. Prints its address.

It takes every message that is signed as gossip asks for, and passes it on; nothing of ours is imported but the topic.
"""

import sys

import trio
from libp2p import YAMUX_PROTOCOL_ID, Yamux, new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.pubsub import pubsub as library
from libp2p.pubsub import rpc_queue
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from sapo_protocol import load_manifest, rollouts_topic

QUEUE = 4096

# Its own queues of 32 lose most of a burst without a word.
rpc_queue.RpcQueue.__init__.__defaults__ = (QUEUE, *rpc_queue.RpcQueue.__init__.__defaults__[1:])
library.SUBSCRIPTION_CHANNEL_SIZE = 100_000


async def main(swarm: str) -> None:
    keys = create_new_key_pair(bytes(32))
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(key_pair=keys, sec_opt={NOISE: noise}, muxer_opt={YAMUX_PROTOCOL_ID: Yamux})
    router = GossipSub(
        protocols=[PROTOCOL_ID_V11],
        degree=6,
        degree_low=4,
        degree_high=10,
        heartbeat_interval=1,
        gossip_window=3,
        gossip_history=5,
        adaptive_gossip_enabled=False,
        spam_protection_enabled=False,
        eclipse_protection_enabled=False,
    )
    router.graft_flood_threshold = 0.0  # whoever listens to a measurement asks for its place again and again
    node = library.Pubsub(host, router)
    async with (
        host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]),
        background_trio_service(node),
        background_trio_service(router),
    ):
        await node.wait_until_ready()
        subscription = await node.subscribe(rollouts_topic(load_manifest(swarm)))
        print(host.get_addrs()[0], flush=True)
        while True:
            await subscription.get()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
