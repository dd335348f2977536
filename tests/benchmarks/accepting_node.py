"""A node's network that accepts everything: `accepting_node.py TOPIC`. Prints its address."""

import sys

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_node.storage.keys import Identity


async def accept(_sender, _data):
    return Verdict.ACCEPT


async def main(topic):
    seed = bytes(31) + b"\x01"
    peer = Identity(Ed25519PrivateKey.from_private_bytes(seed)).peer_id
    settings = NetworkSettings(seed, "ab" * 32, listen=("/ip4/127.0.0.1/tcp/0",), discover=False)
    channels = {topic: Channel(accept, 2**20)}
    network = Libp2pNetwork(settings, peer, channels, admit=lambda _: True, notify=lambda _: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        print(network.addresses[0], flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
