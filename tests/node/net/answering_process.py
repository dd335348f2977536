"""A node that answers every message it takes, to be attacked: `answering_process.py stock|ours <number> <folder>`.

`stock` is py-libp2p as it comes, with sane settings and nothing of ours imported; `ours` is this project's network with
its ledger in the folder. Both hold the same opinion of messages, forget one that they saw after one second instead of
120, print their address, and answer `x` by publishing `took x`.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

SWARM = "ab" * 32
TOPIC = f"/sapo/2/{SWARM}/rollouts/0"
LOOPBACK = "/ip4/127.0.0.1/tcp/0"
SEEN_SECONDS = 1


def valid(data: bytes) -> bool:
    """What both nodes ask of a message, in a validator that has a fault of its own."""
    if data.startswith(b"fault"):
        raise ValueError("a fault of the validator")
    return not data.startswith(b"bad")


def tell(address: str) -> None:
    sys.stdout.write(address + "\n")
    sys.stdout.flush()


async def stock(seed: bytes, _folder: Path) -> None:
    from libp2p.pubsub.pubsub import Pubsub
    from libp2p.pubsub.score import ScoreParams, TopicScoreParams
    from libp2p.tools.anyio_service import background_trio_service
    from multiaddr import Multiaddr

    from stock_libp2p import stock_host, stock_router

    host = stock_host(seed)
    invalid = TopicScoreParams(weight=10, cap=100)
    router = stock_router(score_params=ScoreParams(p4_invalid_messages=invalid, publish_threshold=-50))
    pubsub = Pubsub(host, router, seen_ttl=SEEN_SECONDS, sweep_interval=SEEN_SECONDS)
    pubsub.set_topic_validator(TOPIC, lambda _forwarder, message: valid(message.data), False)
    async with (
        host.run(listen_addrs=[Multiaddr(LOOPBACK)]),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        subscription = await pubsub.subscribe(TOPIC)
        tell(str(host.get_addrs()[0]))
        while True:
            message = await subscription.get()
            if message.from_id != host.get_id().to_bytes():
                await pubsub.publish(TOPIC, b"took " + message.data)


async def ours(seed: bytes, folder: Path) -> None:
    from nacl.signing import SigningKey

    from sapo_node.gossip import seen
    from sapo_node.gossip.verdict import Verdict
    from sapo_node.net.interface import Channel
    from sapo_node.net.libp2p import Libp2pNetwork
    from sapo_node.net.settings import NetworkSettings
    from sapo_node.storage.database import Database
    from sapo_node.trust.constants import Fact
    from sapo_node.trust.ledger import SCHEMA, Ledger
    from sapo_protocol.keys import peer_id

    seen.SETTLED_SECONDS = seen.IGNORED_SECONDS = float(SEEN_SECONDS)
    database = Database(folder / "ledger.sqlite", (SCHEMA,))
    ledger = Ledger(database)

    async with trio.open_nursery() as nursery:

        async def handle(sender: str, data: bytes) -> Verdict:
            if not valid(data):
                ledger.report(sender, Fact.INVALID_MESSAGE)
                return Verdict.REJECT
            nursery.start_soon(network.publish, TOPIC, b"took " + data)
            return Verdict.ACCEPT

        network = Libp2pNetwork(
            NetworkSettings(seed=seed, network_id=SWARM, listen=(LOOPBACK,), discover=False),
            peer_id(bytes(SigningKey(seed).verify_key)),
            {TOPIC: Channel(handle, 900_000)},
            admit=ledger.admits,
            notify=lambda _: None,
        )
        await nursery.start(network.run)
        tell(network.addresses[0])


NODES: dict[str, Callable[[bytes, Path], Awaitable[None]]] = {"stock": stock, "ours": ours}

if __name__ == "__main__":
    kind, number, folder = sys.argv[1:]
    trio.run(NODES[kind], bytes([int(number)]) * 32, Path(folder))
