"""Multiaddresses as people give them and as peers can dial them."""

import ipaddress
import socket

import trio
from multiaddr import Multiaddr

from sapo_protocol.errors import LocalError
from sapo_protocol.keys import public_key_of

HOST_PROTOCOLS = frozenset({"ip4", "ip6", "dns", "dns4", "dns6"})
IPV4 = 4
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound here


class AddressError(LocalError):
    """An address given by the operator is malformed."""


def parts_of(text: str) -> dict[str, str]:
    """The components of `/<host>/.../tcp/<port>[/p2p/<peer id>]`. Raises ValueError for any other shape."""
    address = Multiaddr(text)  # raises several kinds of ValueError
    names = [protocol.name for protocol in address.protocols()]
    if len(names) not in {2, 3} or names[0] not in HOST_PROTOCOLS or names[1] != "tcp":
        raise ValueError("only /ip4, /ip6 or /dns with /tcp are spoken")
    if names[2:] not in ([], ["p2p"]):
        raise ValueError("nothing but /p2p/<peer id> may follow the port")
    return {name: str(address.value_for_protocol(name)) for name in names}


def parse_dial(text: str) -> tuple[str, str]:
    """(peer id, address without it) of an address to dial, such as one given with --bootstrap."""
    shape = "write it as /ip4/<address>/tcp/<port>/p2p/<peer id>"
    try:
        peer_id = parts_of(text).get("p2p", "")
        if peer_id:
            public_key_of(peer_id)
    except (ValueError, LocalError) as error:
        raise AddressError(f"{text!r} cannot be dialled ({error}): {shape}") from error
    if not peer_id:
        raise AddressError(f"{text!r} does not say which peer should answer: {shape}")
    return peer_id, text.rpartition("/p2p/")[0]


def parse_listen(text: str) -> str:
    """An address to listen on; a trailing /p2p part is dropped."""
    address = _place(text, "--listen", "such as /ip4/0.0.0.0/tcp/4001")
    if not parts_of(address).keys() & {"ip4", "ip6"}:
        raise AddressError(f"--listen {text!r} is a name: write the IP address to listen on, or 0.0.0.0 for all")
    return address


def parse_announce(text: str) -> str:
    """An address under which others reach this node; a trailing /p2p part is dropped."""
    shape = "such as /ip4/203.0.113.5/tcp/4001 or /dns4/node.example.org/tcp/4001"
    address = _place(text, "--announce", shape)
    if not is_dialable(address):
        raise AddressError(f"--announce {text!r} can be dialled by nobody: write the address that others see, {shape}")
    return address


def _place(text: str, option: str, shape: str) -> str:
    try:
        parts = parts_of(text)
    except ValueError as error:
        raise AddressError(f"{option} {text!r} is no usable address ({error}): write one {shape}") from error
    return text.rpartition("/p2p/")[0] if "p2p" in parts else text


def is_dialable(text: str) -> bool:
    """Whether an address from a peer has a shape that we dial: IP or name, a TCP port, nothing else."""
    try:
        parts = parts_of(text)
    except ValueError:
        return False
    return parts["tcp"] != "0" and not WILDCARDS & set(parts.values())


def may_be_followed(text: str, met: str) -> bool:
    """Whether an address that a peer names is one to dial: by number, and on no more private a network than the one at
    whose address `met` that peer was met. Else a stranger could have us knock at doors that it cannot reach itself.
    """
    if not is_dialable(text):
        return False
    try:
        named, here = ipaddress.ip_address(host_of(text)), ipaddress.ip_address(host_of(met))
    except ValueError:
        return False
    return _reach(named) >= _reach(here)


def _reach(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    """How far an address reaches: this machine, this site, or the world."""
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return 0
    return 2 if address.is_global else 1


def host_of(text: str) -> str:
    """The IP address or name in an address."""
    return text.split("/")[2] if text.startswith("/") else text


def network_of(text: str) -> str:
    """What addresses of one owner are likely to share: the /16 of an IPv4 address, the /32 of an IPv6 one, a name."""
    host = host_of(text)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 16 if address.version == IPV4 else 32), strict=False))


async def resolve(text: str) -> tuple[str, ...]:
    """The same place by IP address, asked from this machine's own resolver; OSError when the name is unknown.

    The library asks name servers directly and knows nothing of /etc/hosts.
    """
    parts = parts_of(text)
    kind = next(name for name in parts if name in HOST_PROTOCOLS)
    if kind in {"ip4", "ip6"}:
        return (text,)
    family = {"dns4": socket.AF_INET, "dns6": socket.AF_INET6}.get(kind, socket.AF_UNSPEC)
    found = await trio.socket.getaddrinfo(parts[kind], parts["tcp"], family, socket.SOCK_STREAM)
    texts = (
        f"/{'ip6' if found_family is socket.AF_INET6 else 'ip4'}/{place[0]}/tcp/{parts['tcp']}"
        for found_family, _, _, _, place in found
    )
    return tuple(dict.fromkeys(texts))
