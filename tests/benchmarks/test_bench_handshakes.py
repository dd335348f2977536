"""What a new connection costs a node: one that gets a handshake, and one over the rate of connections."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import trio

from sapo_node.net.connection_rate import ALL_CONNECTIONS_BURST

pytestmark = pytest.mark.bench

NODE = Path(__file__).parents[1] / "node" / "net" / "answering_process.py"
HANDSHAKES, REFUSED = int(ALL_CONNECTIONS_BURST), 5_000
MULTISTREAM, NOISE = b"\x13/multistream/1.0.0\n", b"\x07/noise\n"


async def begin_handshake(port, source):
    """Send what lets the node do its part of a handshake, and leave; whether it did."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port, local_address=source) as stream:
            await stream.send_all(MULTISTREAM + NOISE)
            heard = b""
            while NOISE not in heard:
                more = await stream.receive_some(4096)
                if not more:
                    return False
                heard += more
            await stream.send_all((32).to_bytes(2, "big") + os.urandom(32))
            return await stream.receive_some(4096) != b""
    except trio.BrokenResourceError:
        return False


async def begin_each(port, count):
    """From 250 address blocks in turn; how many got a handshake."""
    return sum([await begin_handshake(port, f"127.9.{number % 250}.1") for number in range(count)])


def test_what_a_connection_costs_with_and_without_a_handshake(tmp_path):
    with subprocess.Popen(
        [sys.executable, str(NODE), "ours", "9", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as node:
        port = int(node.stdout.readline().split("/")[4])
        costs = []
        for count in (HANDSHAKES, REFUSED):
            before = sum(psutil.Process(node.pid).cpu_times()[:2])
            taken = trio.run(begin_each, port, count)
            costs.append((sum(psutil.Process(node.pid).cpu_times()[:2]) - before) / count)
            print(f"\n{count} connections, {taken} with a handshake: {1000 * costs[-1]:.2f} ms of the node's CPU each")
        print(f"a connection over the rate costs {costs[0] / costs[1]:.0f} times less")
        node.kill()
