"""Nodes behind home routers, in a lab of network namespaces."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from router_lab import Host, Lab, Nat, Router, reason_without

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := reason_without()), reason=why)]

UPNPD = """
ext_ifname=outer
listening_ip=segment
enable_natpmp=yes
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
MAP = """
import json, sys, trio
from sapo_node.net import port_mapping
ways = {"pcp": port_mapping.Gateway(port_mapping.default_gateway()).ask, "upnp": port_mapping.ask_by_upnp}
mapping = trio.run(ways[sys.argv[1]], 4001, 600)
print(json.dumps([mapping.host, mapping.port]))
"""
ECHO = (
    "import socket; s = socket.create_server(('0.0.0.0', 4001)); print('up', flush=True); s.accept()[0].send(b'here')"
)
DIAL = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).recv(9).decode())"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        yield lab


@pytest.fixture
def maps_ports(tmp_path: Path) -> Iterator:
    """`maps_ports(router)` runs miniupnpd on a router."""
    if shutil.which("miniupnpd") is None:
        pytest.skip("miniupnpd is not installed")
    running: list[subprocess.Popen[str]] = []

    def run(router: Router) -> None:
        settings = tmp_path / "miniupnpd.conf"
        settings.write_text(UPNPD)
        router.run("nft", UPNPD_CHAINS)
        command = ["miniupnpd", "-d", "-f", str(settings), "-P", str(tmp_path / "miniupnpd.pid")]
        running.append(router.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(0.5)

    yield run
    for each in running:
        each.kill()
        each.wait()


def python(host: Host, program: str, *arguments: str) -> str:
    """The output of a Python program on a host."""
    path = f"import sys; sys.path[:0] = {[each for each in sys.path if each]!r}\n"
    return host.run(sys.executable, "-c", path + program, *arguments).strip()


@pytest.mark.parametrize("way", ["pcp", "upnp"])
def test_a_router_that_maps_the_port_makes_a_node_dialable(lab: Lab, maps_ports, way: str) -> None:
    stranger, router = lab.host(), lab.router(Nat.PORT_RESTRICTED)
    inner = lab.host(router)
    maps_ports(router)
    host, port = json.loads(python(inner, MAP, way))
    with inner.start([sys.executable, "-c", ECHO], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        assert python(stranger, DIAL, host, str(port)) == "here"
