"""A node in a process of its own, to be killed:

    peer_process.py <number> <network id> <listen>[,<listen>] [<bootstrap>...]

Prints its address when it listens, then a line for each notice. It accepts every message. It answers each request with
the peer ids of its peers that reserved, and every second asks each peer and meets the peers that it names.
"""

import sys
from contextlib import suppress

import trio
from nacl.signing import SigningKey

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import AskFailed, Channel, Requests
from sapo_node.net.libp2p import Libp2pNetwork
from sapo_node.net.settings import NetworkSettings
from sapo_protocol.keys import peer_id


async def accept(_sender: str, _data: bytes) -> Verdict:
    return Verdict.ACCEPT


def say(text: object) -> None:
    with suppress(BrokenPipeError):
        print(text, flush=True)  # noqa: T201 - what this process is for


async def main(number: str, network_id: str, listen: str, *bootstrap: str) -> None:
    seed = bytes([int(number)]) * 32
    settings = NetworkSettings(
        seed=seed,
        network_id=network_id,
        listen=tuple(listen.split(",")),
        bootstrap=bootstrap,
        discover=not bootstrap and listen.startswith("/ip4/0.0.0.0"),
    )
    channels = {f"/sapo/2/{network_id}/rollouts/0": Channel(accept, 900_000)}
    name = peer_id(bytes(SigningKey(seed).verify_key))

    async def answer(_peer: str, _data: bytes) -> bytes:
        return ",".join(each.peer_id for each in network.peers() if each.reserved).encode()

    requests = Requests("/sapo/test/peers", answer)
    network = Libp2pNetwork(settings, name, channels, requests=requests, admit=lambda _: True, notify=say)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        say(network.addresses[-1])
        while True:
            await trio.sleep(1)
            for peer in network.peers():
                with suppress(AskFailed):
                    for named in (await network.ask(peer.peer_id, b"peers")).decode().split(","):
                        if named != name:
                            network.try_address(peer.peer_id, named, "/p2p-circuit")


trio.run(main, *sys.argv[1:])
