"""A node in a process of its own, to be killed: `peer_process.py <number> <network id> <listen> [<bootstrap>...]`.

Prints its address when it listens, then a line for each notice. It accepts every message.
"""

import sys
from contextlib import suppress

import trio
from nacl.signing import SigningKey

from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import Channel
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
        listen=(listen,),
        bootstrap=bootstrap,
        discover=not bootstrap and listen.startswith("/ip4/0.0.0.0"),
    )
    channels = {f"/sapo/2/{network_id}/rollouts/0": Channel(accept, 900_000)}
    name = peer_id(bytes(SigningKey(seed).verify_key))
    network = Libp2pNetwork(settings, name, channels, admit=lambda _: True, notify=say)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        say(network.addresses[-1])


trio.run(main, *sys.argv[1:])
