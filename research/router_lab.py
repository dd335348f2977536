"""Hosts behind home routers, each in a network namespace of its own, on one public segment.

A router is nftables with conntrack. Its NAT is of one of three kinds (RFC 4787; for TCP, RFC 5382):

- FULL_CONE forwards every port to its first host.
- PORT_RESTRICTED keeps the port of the inner host, and lets in only answers.
- SYMMETRIC takes a random port for each destination, and lets in only answers.

For IPv6 no router has NAT: its hosts have public addresses, and it lets in only answers (RFC 6092).

The public segment is 11.0.0.0/8 and 2600::/16, because the node treats these addresses as addresses of the Internet.
Each host and router on it has a /16 and a /32 of its own. Nothing leaves the machine.

    with Lab() as lab:
        inner = lab.host(lab.router(Nat.PORT_RESTRICTED))
        process = inner.start([sys.executable, "peer.py"], stdout=subprocess.PIPE)

`inner.command([...])` is the same command line for a program that starts processes by itself. Needs root.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self


class Nat(StrEnum):
    """What a router does with ports."""

    FULL_CONE = "full cone"
    PORT_RESTRICTED = "port-restricted"
    SYMMETRIC = "symmetric"


def reason_without() -> str:
    """The reason for which this machine cannot build a lab; empty if it can."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in ("ip", "nft") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    try:
        with Lab() as lab:
            lab.router(Nat.PORT_RESTRICTED)
    except subprocess.CalledProcessError as error:
        return f"this machine allows no network namespaces with NAT: {error.stderr.strip()}"
    return ""


@dataclass
class Host:
    """A machine with one IPv4 address and one IPv6 address."""

    namespace: str
    address: str
    ipv6: str
    """Empty behind a router that is behind another."""

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a program on it. The process that starts becomes the program."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def start(self, command: Sequence[str], **settings: Any) -> "subprocess.Popen[str]":
        """Start a program on it."""
        return subprocess.Popen(self.command(command), text=True, **settings)

    def run(self, *command: str) -> str:
        """Run a program on it to its end. Returns its output, and raises CalledProcessError if it fails."""
        return subprocess.run(self.command(command), check=True, capture_output=True, text=True).stdout


@dataclass
class Router(Host):
    """A router; `address` is its outer address."""

    network: str
    """The first three bytes of the addresses behind it."""
    ipv6_network: str
    """The first 48 bits of the IPv6 addresses behind it; empty if there are none."""
    hosts: list[Host] = field(default_factory=list)


class Lab:
    """The public segment and all that is attached to it. Everything is removed at the end of the `with` block."""

    def __init__(self) -> None:
        self._prefix = f"sapo{os.getpid()}"
        self._namespaces: list[str] = []

    def __enter__(self) -> Self:
        self._public = self._namespace()
        self._inside(self._public, "link add segment type bridge", "link set segment up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for namespace in self._namespaces:
            _ip(f"netns del {namespace}")

    def host(self, router: Router | None = None) -> Host:
        """A new host behind a router, or on the public segment."""
        namespace = self._namespace()
        if router is None:
            number = len(self._namespaces)
            host = Host(namespace, f"11.{number}.0.1", f"2600:{number}::1")
            self._attach(host, self._public, 8, 16)
            return host
        number = len(router.hosts) + 2
        host = Host(namespace, f"{router.network}.{number}", router.ipv6_network and f"{router.ipv6_network}::{number}")
        router.hosts.append(host)
        self._attach(host, router.namespace, 24, 64)
        self._inside(namespace, f"route add default via {router.network}.1")
        if host.ipv6:
            self._inside(namespace, f"route add default via {router.ipv6_network}::1")
            self._inside(router.namespace, f"neigh add proxy {host.ipv6} dev outer")
        return host

    def router(self, nat: Nat, *, behind: Router | None = None, hairpin: bool = False) -> Router:
        """A new router on the public segment or behind another. Its first host must be added before it forwards to it.

        With `hairpin` it forwards also what its own hosts send to its outer address.
        """
        outer = self.host(behind)
        number = len(self._namespaces)
        inner = "" if behind else f"2600:{number}:1"
        router = Router(outer.namespace, outer.address, outer.ipv6, f"192.168.{number}", inner)
        forwarding = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.outer.proxy_ndp=1")
        router.run("sysctl", "-qw", *forwarding)
        self._inside(
            router.namespace,
            "link add segment type bridge",
            f"address add {router.network}.1/24 dev segment",
            *([f"address add {inner}::1/64 dev segment nodad"] if inner else ()),
            "link set segment up",
        )
        first = f"{router.network}.2"
        arrives = "" if hairpin else "iifname outer"
        forward = f"ip daddr {router.address} tcp dport 1024-65535 {arrives} dnat to {first}"
        router.run(
            "nft",
            f"""
            table ip nat {{
                chain arriving {{
                    type nat hook prerouting priority dstnat;
                    {forward if nat is Nat.FULL_CONE else ""}
                }}
                chain leaving {{
                    type nat hook postrouting priority srcnat;
                    oifname outer masquerade {"random,fully-random" if nat is Nat.SYMMETRIC else ""}
                    {f"ip saddr {router.network}.0/24 ip daddr {router.network}.0/24 masquerade" if hairpin else ""}
                }}
            }}
            table inet filter {{
                chain to_router {{
                    type filter hook input priority filter;
                    iifname outer ct state new drop
                }}
                chain through {{
                    type filter hook forward priority filter; policy drop;
                    iifname segment accept
                    ct state established,related accept
                    ct status dnat accept
                }}
            }}
            """,
        )
        return router

    def _namespace(self) -> str:
        name = f"{self._prefix}-{len(self._namespaces)}"
        _ip(f"netns add {name}")
        self._namespaces.append(name)
        self._inside(name, "link set lo up")
        return name

    def _attach(self, host: Host, segment: str, ipv4_bits: int, ipv6_bits: int) -> None:
        port = f"port{len(self._namespaces)}"
        _ip(f"link add outer netns {host.namespace} type veth peer name {port} netns {segment}")
        self._inside(segment, f"link set {port} master segment up")
        self._inside(
            host.namespace,
            f"address add {host.address}/{ipv4_bits} dev outer",
            *([f"address add {host.ipv6}/{ipv6_bits} dev outer nodad"] if host.ipv6 else ()),
            "link set outer up",
        )

    def _inside(self, namespace: str, *commands: str) -> None:
        for command in commands:
            _ip(f"-n {namespace} {command}")


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True)
