"""CPU and delay of each message through a node with all its checks, beside py-libp2p by itself.

Both processes run at once. The same publishers send TURN messages through one, then through the other. What else the
machine does slows both alike, so the ratio of their CPU is steady where messages a second are not.
"""

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from load_publishers import Publishers, trusting
from processes import RunningProcess, write_swarm

pytestmark = pytest.mark.bench

USERS, WINDOW = 8, 16
"""Publishers; messages that are on their way at a time."""
TURN, TURNS, RATIOS = 64, 12, 5
"""Messages of one turn; turns of each process for one ratio; ratios, of which the median counts."""
FILLED = 10
"""Turns that fill the queues of a node before it is measured."""
WORDS = "bench"


@contextmanager
def bare(swarm, _folder):
    script = Path(__file__).with_name("bare_node.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(swarm)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def ours(*arguments):
    @contextmanager
    def running(swarm, folder):
        config = trusting(folder, WORDS, USERS)
        with RunningProcess(folder, "--swarm", swarm, *config, *arguments) as node:
            yield node.process.pid, node.until_event("started")["addresses"][0]

    return running


class Measured:
    """One process and its publishers."""

    def __init__(self, stack, running, swarm, folder, size):
        pid, address = stack.enter_context(running(swarm, folder))
        self._cpu = ~pid << 3 | 2  # as clock_getcpuclockid(3) of Linux: psutil counts in steps of 10 ms
        self._publishers = stack.enter_context(closing(Publishers(address, swarm, WORDS, USERS)))
        self._size = size
        self.seconds = []
        """From when each message was due until the listener had it."""
        self.lost = 0

    def turn(self):
        """Send TURN messages through the process; the seconds of CPU that it took."""
        before = time.clock_gettime(self._cpu)
        for number in range(TURN + WINDOW):
            if number >= WINDOW:
                self._await_one()
            if number < TURN:
                line = {"publish": number % USERS, "kind": "valid", "bytes": self._size, "ref": number}
                self._publishers.tell(line | {"due": time.monotonic()})
        return time.clock_gettime(self._cpu) - before

    def _await_one(self):
        answer = self._publishers.said.get(timeout=60)
        if "seconds" in answer:
            self.seconds.append(answer["seconds"])
        else:
            self.lost += 1

    def __str__(self):
        late = statistics.quantiles(self.seconds, n=100)
        return f"half within {1e3 * late[49]:.0f} ms, 99 % within {1e3 * late[98]:.0f} ms, lost {self.lost}"


@pytest.mark.parametrize("size", [4_000, 32_000, 128_000])
@pytest.mark.parametrize("arguments", [("--no-train",), ()], ids=["relays", "trains"])
def test_a_message_through_all_checks_against_the_bare_library(tmp_path, arguments, size):
    # Each message is forwarded whole, whatever its size.
    swarm = write_swarm(tmp_path / "bench.toml", max_rounds=100_000, inline_bytes=1_000_000)
    with ExitStack() as stack:
        library = Measured(stack, bare, swarm, tmp_path, size)
        node = Measured(stack, ours(*arguments), swarm, tmp_path / "node", size)
        for _ in range(FILLED):
            library.turn()
            node.turn()
        spent = [[(library.turn(), node.turn()) for _ in range(TURNS)] for _ in range(RATIOS)]
    totals = [[1e3 * sum(seconds) / TURN / TURNS for seconds in zip(*turns, strict=True)] for turns in spent]
    ratios = sorted(of_node / of_library for of_library, of_node in totals)
    of_library, of_node = map(statistics.median, zip(*totals, strict=True))
    print(
        f"\n{size // 1000} KB, {WINDOW} on their way at a time: a message takes {statistics.median(ratios):.2f} of the "
        f"library's CPU ({ratios[0]:.2f} to {ratios[-1]:.2f}), {of_node:.2f} ms beside {of_library:.2f}"
    )
    print(f"py-libp2p by itself: {library}\nthis node: {node}")
