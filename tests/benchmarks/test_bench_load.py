"""Delivery through a node with all its checks, beside py-libp2p by itself: the same publishers and listener."""

import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from load_publishers import Publishers, trusting
from processes import RunningProcess, write_swarm

pytestmark = pytest.mark.bench

USERS, WINDOW, SECONDS = 8, 16, 15.0
"""Publishers; messages that are on their way at a time; how long each measurement takes."""
WORDS = "bench"


def measure(publishers, size):
    """Seconds of each message that arrived within the time, and how many were lost."""
    sent, seconds, lost = 0, [], 0
    end = time.monotonic() + SECONDS

    def send():
        nonlocal sent
        line = {"publish": sent % USERS, "kind": "valid", "bytes": size, "ref": sent, "due": time.monotonic()}
        publishers.tell(line)
        sent += 1

    for _ in range(WINDOW):
        send()
    while len(seconds) + lost < sent:
        answer = publishers.said.get(timeout=60)
        if "seconds" in answer:
            seconds.append(answer["seconds"])
        else:
            lost += 1
        if time.monotonic() < end:
            send()
    return seconds, lost


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


NODES = {"py-libp2p by itself": bare, "a node that relays": ours("--no-train"), "a node that trains": ours()}


def measured(kind, swarm, folder, size):
    """Messages a second, median and 99th percentile of their seconds, how many were lost, CPU-ms of each."""
    with NODES[kind](swarm, folder) as (pid, address):
        publishers = Publishers(address, swarm, WORDS, USERS)
        try:
            before, since = psutil.Process(pid).cpu_times(), time.monotonic()
            seconds, lost = measure(publishers, size)
            after, took = psutil.Process(pid).cpu_times(), time.monotonic() - since
        finally:
            publishers.close()
    cpu = (after.user - before.user) + (after.system - before.system)
    late = statistics.quantiles(seconds, n=100)
    return len(seconds) / took, late[49], late[98], lost, 1e3 * cpu / len(seconds)


@pytest.mark.parametrize("size", [4_000, 32_000, 128_000])
def test_delivery_through_all_checks_against_the_bare_library(tmp_path, size):
    swarm = write_swarm(tmp_path / "bench.toml", max_rounds=100_000)
    print(f"\n{size // 1000} KB, {WINDOW} on their way at a time")
    reference = None
    for number, kind in enumerate(NODES):
        rate, median, late, lost, cpu = measured(kind, swarm, tmp_path / str(number), size)
        reference = reference or rate
        print(
            f"{kind:20} {rate:6.1f} a second ({rate / reference:.0%}), half within {1e3 * median:.0f} ms, 99 % within "
            f"{1e3 * late:.0f} ms, lost {lost}, {cpu:.1f} CPU-ms each"
        )
