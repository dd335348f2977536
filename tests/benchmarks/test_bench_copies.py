"""What further copies of a message cost a node's network beside the first: in a mesh most that come are not the first,
and it is passed on to several peers.
"""

import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
import trio

from processes import ENVIRONMENT
from sapo_adversary.attacks.gossip.peer import running
from sapo_adversary.load.publishers import signed

pytestmark = pytest.mark.bench

TOPIC = f"/sapo/2/{'ab' * 32}/rollouts/0"
MESSAGES, MORE = 300, 4
"""Sent by one peer and again by another; peers that only listen, where there are more than those two."""


async def deaf(_sender, _rpc): ...


async def settled(process):
    """CPU seconds of a process, once it takes no more of them."""
    before = -1.0
    while (now := sum(process.cpu_times()[:2])) - before > 0.005:
        before = now
        await trio.sleep(0.3)
    return now


async def spent(size, listeners):
    """CPU milliseconds for each message that one peer sends, that the other sends again, and that the first repeats."""
    command = [sys.executable, Path(__file__).with_name("accepting_node.py"), TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as node:  # noqa: ASYNC220
        try:
            address, process = node.stdout.readline().strip(), psutil.Process(node.pid)
            async with AsyncExitStack() as stack:
                links = []
                for number in range(2 + listeners):
                    place = (f"127.0.0.{7 + number}", 0)
                    peer = await stack.enter_async_context(running(bytes([number]) * 32, place, deaf))
                    links.append(await peer.dial(address))
                    await links[-1].subscribe(TOPIC)
                    await links[-1].graft(TOPIC)
                keys = links[0].peer.keys
                messages = [signed(keys, TOPIC, os.urandom(size)) for _ in range(MESSAGES)]
                taken = []
                for link in (links[0], links[1], links[0]):
                    before = await settled(process)
                    for message in messages:
                        await link.publish(message)
                        await trio.sleep(0.005)
                    taken.append(1e3 * (await settled(process) - before) / MESSAGES)
                return taken
        finally:
            node.kill()


@pytest.mark.parametrize("size", [4_096, 32_768, 131_072])
async def test_further_copies_against_the_first(size):
    first, *again = await spent(size, 0)
    to_more, *_ = await spent(size, MORE)
    received, sent = sum(again) / len(again), (to_more - first) / MORE
    print(
        f"\n{size // 1024} KB: a message takes {first:.2f} ms of CPU, passed on to one; another copy that comes "
        f"{received / first:.2f} of that ({received:.2f} ms), another that goes {sent / first:.2f} ({sent:.2f} ms)"
    )
