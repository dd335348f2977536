"""py-libp2p by itself, with the settings that it needs to be fast: `bare_node.py SWARM`. Prints its address.

It takes every message that is signed as gossip asks for, and passes it on; nothing of ours is imported but the topic.
"""

import sys

import trio
from libp2p.pubsub import pubsub as library
from libp2p.pubsub import rpc_queue
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from sapo_protocol import load_manifest, rollouts_topic
from stock_libp2p import stock_host, stock_router

QUEUE = 4096

# Its own queues of 32 lose most of a burst without a word.
rpc_queue.RpcQueue.__init__.__defaults__ = (QUEUE, *rpc_queue.RpcQueue.__init__.__defaults__[1:])
library.SUBSCRIPTION_CHANNEL_SIZE = 100_000


async def main(swarm: str) -> None:
    host = stock_host(bytes(32))
    router = stock_router(gossip_window=3, gossip_history=5)
    router.graft_flood_threshold = 0.0  # whoever listens to a measurement asks for its place again and again
    node = library.Pubsub(host, router)
    async with (
        host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]),
        background_trio_service(node),
        background_trio_service(router),
    ):
        await node.wait_until_ready()
        subscription = await node.subscribe(rollouts_topic(load_manifest(swarm), 0))
        print(host.get_addrs()[0], flush=True)
        while True:
            await subscription.get()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
