"""What a second copy of a message costs a node's network beside the first: in a mesh most copies are not the first."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import trio

from processes import ENVIRONMENT
from sapo_adversary.attacks.gossip.peer import running
from sapo_adversary.load.publishers import signed

pytestmark = pytest.mark.bench

TOPIC = f"/sapo/1/{'ab' * 32}/rollouts/0"
MESSAGES = 300


async def deaf(_sender, _rpc): ...


async def settled(process):
    """CPU seconds of a process, once it takes no more of them."""
    before = -1.0
    while (now := sum(process.cpu_times()[:2])) - before > 0.005:
        before = now
        await trio.sleep(0.3)
    return now


@pytest.mark.parametrize("size", [4_096, 32_768, 131_072])
async def test_a_copy_against_the_first(size):
    command = [sys.executable, Path(__file__).with_name("accepting_node.py"), TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as node:  # noqa: ASYNC220
        try:
            address, process = node.stdout.readline().strip(), psutil.Process(node.pid)
            async with (
                running(bytes([1]) * 32, ("127.0.0.7", 0), deaf) as one,
                running(bytes([2]) * 32, ("127.0.0.8", 0), deaf) as other,
            ):
                links = [await each.dial(address) for each in (one, other)]
                for link in links:
                    await link.subscribe(TOPIC)
                    await link.graft(TOPIC)
                messages = [signed(one.keys, TOPIC, os.urandom(size)) for _ in range(MESSAGES)]
                spent = []
                for link in (*links, *links):
                    before = await settled(process)
                    for message in messages:
                        await link.publish(message)
                        await trio.sleep(0.005)
                    spent.append(1e3 * (await settled(process) - before) / MESSAGES)
        finally:
            node.kill()
    first, *copies = spent
    copy = sum(copies) / len(copies)
    print(
        f"\n{size / 1024:.0f} KB: a copy takes {copy / first:.2f} of the first ({copy:.2f} ms / {first:.2f} ms of CPU)"
    )
