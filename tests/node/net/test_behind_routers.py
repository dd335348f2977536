"""Nodes behind home routers, in a lab of network namespaces."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from research.router_lab import Host, Lab, Nat, Router, reason_without

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := reason_without()), reason=why)]

PEER_PROCESS = Path(__file__).with_name("peer_process.py")
SWARM = "ab" * 32
UPNPD = """
ext_ifname=outer
listening_ip=segment
enable_upnp=yes
secure_mode=yes
uuid=f7554ebe-9eac-4bcf-8e40-7c44dd711e77
allow 1024-65535 0.0.0.0/0 1024-65535
"""
UPNPD_CHAINS = """
table inet filter {
    chain miniupnpd {}
    chain prerouting_miniupnpd {}
    chain postrouting_miniupnpd {}
    chain forward { type filter hook forward priority 10; jump miniupnpd; }
    chain prerouting { type nat hook prerouting priority dstnat; jump prerouting_miniupnpd; }
    chain postrouting { type nat hook postrouting priority srcnat; jump postrouting_miniupnpd; }
}
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        yield lab


class Node:
    """A node on a host of the lab, and the lines that it has printed."""

    def __init__(self, host: Host, number: int, port: int = 0, *bootstrap: str, on: str = "/ip4/0.0.0.0") -> None:
        argv = [sys.executable, str(PEER_PROCESS), str(number), SWARM, f"{on}/tcp/{port}", *bootstrap]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = host.start(argv, stdout=subprocess.PIPE, env=environment)
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.peer_id = self.until("/p2p/(.*)", within=120.0)

    def at(self, host: Host) -> str:
        """Its address on a public host, if it listens on port 4001."""
        return f"/ip4/{host.address}/tcp/4001/p2p/{self.peer_id}"

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, pattern: str, within: float = 30.0) -> str:
        """Wait for a line that the pattern is in, and return its first group."""
        deadline = time.monotonic() + within
        while True:
            if found := re.search(pattern, self._lines.get(timeout=max(0.0, deadline - time.monotonic()))):
                return found.group(1)

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=20)


StartNode = Callable[..., Node]


@pytest.fixture
def node() -> Iterator[StartNode]:
    """`node(host, number, port, *bootstrap)` starts a node."""
    running: list[Node] = []

    def start(*arguments: Any, **settings: Any) -> Node:
        running.append(Node(*arguments, **settings))
        return running[-1]

    yield start
    for each in running:
        each.end(signal.SIGKILL)


RunRouter = Callable[..., None]


@pytest.fixture
def maps_ports(tmp_path: Path) -> Iterator[RunRouter]:
    """`maps_ports(router, *settings)` runs miniupnpd on a router."""
    if shutil.which("miniupnpd") is None:
        pytest.skip("miniupnpd is not installed")
    running: list[subprocess.Popen[str]] = []

    def run(router: Router, *settings: str) -> None:
        file = tmp_path / "miniupnpd.conf"
        file.write_text(UPNPD + "\n".join(settings))
        router.run("nft", UPNPD_CHAINS)
        command = ["miniupnpd", "-d", "-f", str(file), "-P", str(tmp_path / "miniupnpd.pid")]
        running.append(router.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(0.5)

    yield run
    for each in running:
        each.kill()
        each.wait()


def forwarded(router: Router) -> str:
    """The rules by which miniupnpd forwards ports."""
    return router.run("nft", "list", "chain", "inet", "filter", "prerouting_miniupnpd")


FORWARDS = r"the router forwards (/ip4/11\.\S+) to this node \(by {}\)"


@pytest.mark.parametrize(("setting", "way"), [("enable_natpmp=yes", "PCP"), ("enable_natpmp=no", "UPnP")])
def test_a_node_behind_a_router_can_be_dialled_until_it_stops(
    lab: Lab, maps_ports: RunRouter, node: StartNode, setting: str, way: str
) -> None:
    stranger, router = lab.host(), lab.router(Nat.PORT_RESTRICTED)
    inner = lab.host(router)
    maps_ports(router, setting)
    mapped = node(inner, 1)
    outer = mapped.until(FORWARDS.format(way))
    node(stranger, 2, 0, f"{outer}/p2p/{mapped.peer_id}").until(f"(connected to {mapped.peer_id})")
    assert "dport" in forwarded(router)
    mapped.end(signal.SIGINT)
    assert "dport" not in forwarded(router)


def test_a_node_without_a_router_that_maps_ports_runs_on(lab: Lab, node: StartNode) -> None:
    relay, inner = lab.host(), lab.host(lab.router(Nat.PORT_RESTRICTED))
    public = node(relay, 1, 4001)
    node(inner, 2, 0, public.at(relay)).until("(connected to )")


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (Nat.PORT_RESTRICTED, Nat.PORT_RESTRICTED),
        (Nat.FULL_CONE, Nat.PORT_RESTRICTED),
        (Nat.FULL_CONE, Nat.SYMMETRIC),
        (Nat.SYMMETRIC, Nat.FULL_CONE),
    ],
)
def test_two_nodes_behind_routers_are_connected_by_a_peer_of_both(
    lab: Lab, node: StartNode, kind: Nat, other: Nat
) -> None:
    relay, *inner = lab.host(), lab.host(lab.router(kind)), lab.host(lab.router(other))
    public = node(relay, 1, 4001)
    one, two = (node(each, number, 0, public.at(relay)) for number, each in enumerate(inner, 2))
    one.until(f"(connected to {two.peer_id})")
    two.until(f"(connected to {one.peer_id})")


def test_two_nodes_whose_routers_take_a_port_for_each_destination_are_connected_by_ipv6(
    lab: Lab, node: StartNode
) -> None:
    relay, *inner = lab.host(), *(lab.host(lab.router(Nat.SYMMETRIC)) for _ in range(2))
    public = node(relay, 1, 4001)
    both = "/ip4/0.0.0.0/tcp/0,/ip6/::"
    one, two = (node(each, number, 0, public.at(relay), on=both) for number, each in enumerate(inner, 2))
    one.until(f"(connected to {two.peer_id})")
    two.until(f"(connected to {one.peer_id})")


def test_two_nodes_whose_ipv6_firewalls_let_only_answers_in_are_connected_by_a_peer_of_both(
    lab: Lab, node: StartNode
) -> None:
    relay, *inner = lab.host(), *(lab.host(lab.router(Nat.SYMMETRIC)) for _ in range(2))
    public = node(relay, 1, 4001, on="/ip6/::")
    way_in = f"/ip6/{relay.ipv6}/tcp/4001/p2p/{public.peer_id}"
    one, two = (node(each, number, 0, way_in, on="/ip6/::") for number, each in enumerate(inner, 2))
    one.until(f"(connected to {two.peer_id})")
    two.until(f"(connected to {one.peer_id})")
